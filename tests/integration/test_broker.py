"""The broker of the tests says which Java it needs."""

from pathlib import Path

import pytest

from exporter.java import JavaError, java


def test_java_missing_or_too_old_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no Java is found, or an older one, the message says which was looked at and what to install."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaError, match=r"no java in JAVA_HOME=.*next step: install a Java 17"):
        java()
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    old.chmod(0o755)
    with pytest.raises(JavaError, match=r"is Java 11, needed is 17 or newer; next step: "):
        java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", "/dev/null")
    with pytest.raises(JavaError, match="no java on the PATH"):
        java()
