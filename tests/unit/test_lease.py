"""What a lease does that cannot be renewed, with a folder of this host as the storage."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path, PurePosixPath

import pytest
from pyarrow.fs import LocalFileSystem

from exporter.storage import ObjectPath, files
from exporter.storage.lease import Lease

FOLDER = ObjectPath("s3://bucket", PurePosixPath("serve-e.lock"))
RENEW, EXPIRY = 0.1, 1.5


class Failures(dict[str, Exception]):
    """Errors of writing, by the name of the thread that they meet."""


@pytest.fixture
def failures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Failures]:
    """A storage in a folder of this host; what is put here fails."""
    failures = Failures()

    def put(_: object, name: str, content: BytesIO) -> None:
        if error := failures.get(threading.current_thread().name):
            raise error
        path = Path(name)
        path.parent.mkdir(exist_ok=True)
        draft = path.with_suffix(f".{threading.get_ident()}")
        draft.write_bytes(content.getvalue())
        draft.replace(path)

    monkeypatch.setattr(files, "_storage", lambda *_: (LocalFileSystem(), str(tmp_path)))
    monkeypatch.setattr(files, "_put_object", put)
    yield failures
    failures.clear()


def until(condition: Callable[[], bool]) -> None:
    """Wait until it holds, for 20 s at most."""
    end = time.monotonic() + 20.0
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def sure(lease: Lease) -> bool:
    """Whether it still lets its holder write."""
    try:
        lease.require()
    except OSError:
        return False
    return True


def test_an_error_that_nobody_knew_of_does_not_end_the_renewal(
    failures: Failures, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged without its text, as a failed renewal, and the lease is held again after it."""
    lease = Lease(FOLDER, renew_seconds=RENEW, expiry_seconds=EXPIRY)
    failures["lease serve-e.lock"] = ValueError("hidden")
    until(lambda: not sure(lease))
    assert f"the lease {FOLDER} cannot be renewed: an internal error (ValueError)" in caplog.text
    assert "hidden" not in caplog.text
    failures.clear()
    until(lambda: sure(lease))
    lease.release(clean=True)
