"""What a broker of the tests is made of: jars of the release, and properties as Java reads them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.demo.broker import java_properties
from tests.demo.jars import KAFKA_VERSION, DemoError, require_locked, resolve_kafka


def test_a_jar_that_is_not_the_released_one_is_refused(tmp_path: Path) -> None:
    """A repository that serves another Kafka client is named, with the file, before anything of it runs."""
    (tmp_path / "kafka-clients-4.3.1.jar").write_bytes(b"another")
    with pytest.raises(DemoError, match=r"kafka-clients-4\.3\.1\.jar.*: not the file released with kafka-4\.3\.1"):
        require_locked("kafka-4.3.1", tmp_path, tmp_path)


@pytest.mark.parametrize(
    ("folders", "file"),
    [((), "cache"), (("cache/ivy.lock",), ""), (("cache",), f"cache/.kafka-{KAFKA_VERSION}.partial")],
    ids=["the cache", "its lock", "its staging"],
)
def test_a_cache_that_cannot_be_used_is_named(folders: Sequence[str], file: str, tmp_path: Path) -> None:
    """A file in the place of a folder, or the other way round, is told with the reason and the next step."""
    for folder in folders:
        (tmp_path / folder).mkdir(parents=True)
    if file:
        (tmp_path / file).touch()
    cache = tmp_path / "cache"
    with pytest.raises(DemoError, match=rf"^{cache} cannot be used .*; next step: .* TOPIC_LIVENESS_CACHE"):
        resolve_kafka(cache=cache, progress=print)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("/home/anna/data", "/home/anna/data"),
        ("/home/a\\b", "/home/a\\\\b"),
        ("/home/bj\u00f6rn/\u65e5", "/home/bj\\u00f6rn/\\u65e5"),
        ("\U0001d11e", "\\ud834\\udd1e"),
        ("two\nlines", "two\\u000alines"),
        (" first", "\\ first"),
    ],
)
def test_properties_are_written_as_java_reads_them(value: str, written: str) -> None:
    """It takes bytes for ISO-8859-1, a backslash for an escape, and drops spaces before a value."""
    assert java_properties({"node.id": "1", "log.dirs": value}) == f"node.id=1\nlog.dirs={written}\n"
