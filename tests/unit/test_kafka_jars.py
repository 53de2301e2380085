"""What a broker of the tests is made of: jars of the release, and properties as Java reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.demo.jars import DemoError, require_locked


def test_a_jar_that_is_not_the_released_one_is_refused(tmp_path: Path) -> None:
    """A repository that serves another Kafka client is named, with the file, before anything of it runs."""
    (tmp_path / "kafka-clients-4.3.1.jar").write_bytes(b"another")
    with pytest.raises(DemoError, match=r"kafka-clients-4\.3\.1\.jar.*: not the file released with kafka-4\.3\.1"):
        require_locked("kafka-4.3.1", tmp_path, tmp_path)
