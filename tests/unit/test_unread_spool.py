"""A start that cannot read the spool."""

from __future__ import annotations

import errno
import io
from pathlib import Path
from typing import Any, NoReturn

import pytest

from exporter import app
from exporter.domain.exit_codes import ExitCode
from exporter.settings import Settings
from exporter.storage.storage_thread import StorageThread


def test_a_spool_that_does_not_answer_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ends with 2, as where the folder cannot be used at all."""

    def hang(*_: Any, **_options: Any) -> NoReturn:
        raise OSError(errno.ETIMEDOUT, "the storage does not answer")

    monkeypatch.setattr(StorageThread, "call", hang)
    settings = Settings.model_validate(
        {
            "clusters": [{"name": "main", "kafka": {"bootstrap.servers": "127.0.0.1:9092"}}],
            "history": {"folder": str(tmp_path)},
            "overrides": [{"topics": "orders", "max_silence": "1h"}],
        }
    )
    assert app.once(settings, io.StringIO()) == ExitCode.NOT_STARTED
    cause = "the storage does not answer. Fix that and start it again"
    assert capsys.readouterr().err == f"Error: history.folder {str(tmp_path)!r} cannot be read: {cause}\n"
