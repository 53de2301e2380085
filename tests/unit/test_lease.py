"""What a lease does that cannot be renewed, with a folder of this host as the storage."""

import threading
import time
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from pyarrow.fs import LocalFileSystem

from exporter.storage import files
from exporter.storage.files import ObjectPath, put
from spark_rollups.store.lock import Lease
from tests.waiting import until

FOLDER = ObjectPath("s3://bucket", PurePosixPath("rollup.lock"))
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


def test_a_lease_that_cannot_be_renewed_is_lost_after_a_while(
    failures: Failures, caplog: pytest.LogCaptureFixture
) -> None:
    """Errors are logged without their text. One that ends in time costs nothing; a lost lease stays lost."""
    lease = Lease(FOLDER, renew_seconds=RENEW, expiry_seconds=EXPIRY)
    failures["lease rollup.lock"] = ValueError("hidden")
    cause = f"the lease {FOLDER} cannot be renewed: an internal error (ValueError)"
    until(lambda: cause in caplog.text, "a renewal that fails", 20)
    failures.clear()
    time.sleep(EXPIRY)
    assert lease.sure
    failures["lease rollup.lock"] = ValueError("hidden")
    until(lambda: not lease.sure, "a lease that is not sure", 20)
    failures.clear()
    time.sleep(2 * RENEW)
    assert not lease.sure
    assert "hidden" not in caplog.text


@pytest.mark.parametrize("clock", ["clock_gettime", "time"])
def test_a_holder_that_slept_longer_than_its_lease_has_lost_it(
    failures: Failures, monkeypatch: pytest.MonkeyPatch, clock: str
) -> None:
    """A suspended host counts on the clock since boot alone, and a paused virtual machine on the wall clock alone."""
    assert not failures
    lease = Lease(FOLDER, renew_seconds=RENEW, expiry_seconds=100.0)
    assert lease.sure
    now = getattr(time, clock)
    monkeypatch.setattr(time, clock, lambda *which: now(*which) + 300.0)
    assert not lease.sure
    lease.close()


def test_a_holder_whose_renewal_took_longer_than_its_lease_has_lost_it_and_takes_its_claim_back(
    failures: Failures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It began in time, and another process may have taken what was void before it ended."""
    assert not failures
    lease = Lease(FOLDER, renew_seconds=RENEW, expiry_seconds=EXPIRY)

    def slow(path: ObjectPath, write: Callable[[Any], object]) -> None:
        time.sleep(EXPIRY)
        put(path, write)

    monkeypatch.setattr("spark_rollups.store.lock.put", slow)
    until(lambda: not lease.sure, "a lease that is not sure", 20)
    until(lambda: list((tmp_path / "rollup.lock").glob("*.json")) == [], "its claim is gone", 20)
