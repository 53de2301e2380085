"""What a lease does that cannot be renewed, with a folder of this host as the storage."""

from __future__ import annotations

import errno
import os
import re
import threading
import time
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path, PurePosixPath

import pytest
from pyarrow.fs import LocalFileSystem

from exporter.storage import files
from exporter.storage.files import ObjectPath, Stored, files_in
from exporter.storage.lock import Lease, TakenError
from tests.waiting import until

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
    until(lambda: not sure(lease), "a lease that is not sure", 20)
    assert f"the lease {FOLDER} cannot be renewed: an internal error (ValueError)" in caplog.text
    assert "hidden" not in caplog.text
    failures.clear()
    until(lambda: sure(lease), "a lease that is sure again", 20)
    lease.release()


def holder(lease: Lease) -> str:
    """Who has it instead, where that is known; the lease lets nobody write meanwhile."""
    try:
        lease.require()
    except TakenError as error:
        return str(error.strerror)
    except OSError:
        return ""
    pytest.fail("the lease was held again")


@pytest.mark.parametrize("first_list_fails", [False, True])
def test_a_holder_that_was_cut_off_is_not_sure_before_it_has_looked_for_others(
    failures: Failures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first_list_fails: bool
) -> None:
    """While the list is under way, and where it fails, another process may hold it: this one then learns which."""
    lease = Lease(FOLDER, renew_seconds=RENEW, expiry_seconds=EXPIRY)
    under_way, answer = threading.Event(), threading.Event()

    def held_up(folder: ObjectPath, pattern: re.Pattern[str]) -> list[Stored]:
        if not answer.is_set():
            under_way.set()
            answer.wait(20.0)
            if first_list_fails:
                raise OSError(errno.EIO, "the storage failed")
        return files_in(folder, pattern)

    monkeypatch.setattr("exporter.storage.lock.files_in", held_up)
    failures["lease serve-e.lock"] = TimeoutError(errno.ETIMEDOUT, "the storage does not answer")
    until(lambda: not sure(lease), "a lease that is not sure", 20)
    other = tmp_path / "serve-e.lock" / f"{'f' * 32}.json"
    other.write_text('{"process": 7, "host": "elsewhere"}')
    os.utime(other, (time.time() + 3600.0,) * 2)
    failures.clear()
    assert under_way.wait(20.0)
    assert not sure(lease)
    answer.set()
    until(lambda: holder(lease) == "process 7 on host elsewhere", "the other holder", 20)


@pytest.mark.parametrize("clock", ["clock_gettime", "time"])
def test_a_holder_that_slept_longer_than_its_lease_is_not_sure_before_it_has_looked_for_others(
    failures: Failures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: str
) -> None:
    """A suspended host counts on the clock since boot alone, and a paused virtual machine on the wall clock alone."""
    assert not failures
    lease = Lease(FOLDER, renew_seconds=RENEW, expiry_seconds=100.0)
    assert sure(lease)
    other = tmp_path / "serve-e.lock" / f"{'f' * 32}.json"
    other.write_text('{"process": 7, "host": "elsewhere"}')
    now = getattr(time, clock)
    monkeypatch.setattr(time, clock, lambda *which: now(*which) + 300.0)
    until(lambda: holder(lease) == "process 7 on host elsewhere", "the other holder", 20)
