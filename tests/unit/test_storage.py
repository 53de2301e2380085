"""Which folder a path or URI names, and what a storage says that fails."""

import errno
import os
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path, PurePosixPath

import pytest
from pyarrow.fs import GcsFileSystem

from exporter.history.spool import HistoryError, Spool
from exporter.settings.errors import SettingsError
from exporter.settings.load import load_settings
from exporter.storage import files
from exporter.storage import files as storage
from exporter.storage.files import ObjectPath, parse_location
from tests.answers import answering


@pytest.mark.parametrize(
    ("text", "root", "path"),
    [
        ("s3://bucket/a/b/", "s3://bucket", "a/b"),
        ("s3a://bucket/a@b", "s3://bucket", "a@b"),
        ("gs://bucket", "gs://bucket", "."),
        ("abfss://box@account.dfs.core.windows.net/a", "abfss://box@account.dfs.core.windows.net", "a"),
    ],
)
def test_a_uri_names_a_folder_in_object_storage(text: str, root: str, path: str) -> None:
    """What Hadoop calls s3a is S3; a path is one of this host, and so is a file: URI."""
    assert parse_location(text) == ObjectPath(root, PurePosixPath(path))
    assert parse_location(str(parse_location(text))) == parse_location(text)
    assert parse_location("file:///var/lib/history") == Path("/var/lib/history")
    assert parse_location("s3/history") == Path("s3/history")
    assert parse_location("~/history") == Path.home() / "history"


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("s4://bucket/a", "must be a path, or a URI that begins with s3://, gs://, abfs://, abfss://"),
        ("s3:///a", "must name a bucket: s3://BUCKET/FOLDER"),
        ("s3://bucket/a/../b", "must not hold .."),
        ("file://elsewhere/a", "must be file:///PATH: another host's files cannot be named so"),
        ("s3://key:hidden@bucket/a", "cannot hold credentials, or anything after ?"),
        ("s3://key:a/hidden@bucket/a", "cannot hold credentials, or anything after ?"),
        ("gs://key:hidden/a", "cannot hold credentials, or anything after ?"),
        ("s4://key:hidden/b@bucket/a", "must be a path, or a URI that begins with s3://"),
        ("a\0b", "must be a path that a file can have"),
        ("abfss://box:hidden@account.dfs.core.windows.net/a", "cannot hold credentials, or anything after ?"),
        ("abfss://box@account.dfs.core.windows.net/a?sig=hidden", "cannot hold credentials, or anything after ?"),
    ],
)
def test_a_uri_that_names_none_is_refused_without_its_secrets(text: str, rule: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load_settings(None, None, {"TOPIC_LIVENESS_HISTORY__FOLDER": text}, with_clusters=False)
    assert rule in str(refused.value)
    assert "hidden" not in str(refused.value)


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectPath]:
    """A file in a Google bucket that answers each request with HTTP 400."""
    with answering(400, b'{"error": {"code": 400, "message": "invalid_grant hidden"}}') as (address, _):
        client = GcsFileSystem(
            anonymous=True,
            endpoint_override=address.removeprefix("http://"),
            scheme="http",
            retry_time_limit=timedelta(seconds=2),
        )
        monkeypatch.setattr(files, "_storage", lambda *_: (client, "bucket"))
        yield ObjectPath("gs://bucket", PurePosixPath("folder/file"))


@pytest.mark.parametrize(
    "operation",
    [
        storage.open_file,
        storage.file_info,
        storage.delete,
        lambda path: storage.files_in(path.parent, re.compile(".*")),
        lambda path: storage.put(path, lambda file: file.write(b"text")),
    ],
)
def test_what_google_answers_is_an_error_of_the_storage(
    refusing: ObjectPath, operation: Callable[[ObjectPath], object]
) -> None:
    """Whoever writes, reads or lists knows errors of storage only; no text of a request is in it."""
    with pytest.raises(OSError, match="the storage failed") as failed:
        operation(refusing)
    assert failed.value.errno == errno.EIO
    assert "hidden" not in str(failed.value)


def test_a_folder_that_cannot_be_used_is_refused_at_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    user, at = rf"\(user id {os.getuid()}\)", re.escape(repr(str(tmp_path / "file" / "spool" / "windows")))
    rule = rf"history\.folder .*file' must be a folder that this process {user} can write to, and {at} is not: Not a "
    with pytest.raises(HistoryError, match=rule + r"directory\. .* set history\.folder"):
        Spool(tmp_path / "file", "e")
