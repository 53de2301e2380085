"""The files of a report: all of them, or those that were there before."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from spark_rollups.report.build import build_report
from spark_rollups.report.folder import write_files
from tests.unit.test_report_build import facts, finding, judged


@pytest.fixture
def small_disk() -> Iterator[None]:
    """No file of this process may grow beyond 20,000 bytes: to write on fails, as on a full disk."""
    before, limits = signal.signal(signal.SIGXFSZ, signal.SIG_IGN), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, before)


@pytest.mark.usefixtures("small_disk")
def test_a_full_disk_leaves_no_half_report(tmp_path: Path) -> None:
    """The page no longer fits: nothing is left of what did, nor a folder."""
    with pytest.raises(OSError, match="too large"):
        write_files(build_report(facts(judged(finding(None, "dead")))), tmp_path / "report")
    assert list(tmp_path.iterdir()) == []


def test_what_fails_leaves_the_report_before_it(tmp_path: Path) -> None:
    """An owner's folder that cannot be made is known before any file is replaced."""
    report = build_report(facts(judged(finding(None, "dead"))))
    write_files(report, tmp_path)
    before = {path: path.read_text(encoding="utf-8") for path in tmp_path.glob("*.*")}
    (tmp_path / "owners").rmdir()
    (tmp_path / "owners").touch()
    with pytest.raises(FileExistsError):
        write_files(replace(report, summary="another"), tmp_path)
    assert {path: path.read_text(encoding="utf-8") for path in tmp_path.glob("*.*")} == before
    assert not list(tmp_path.glob(".*"))


def test_pages_of_owners_that_have_nothing_more_to_do_go(tmp_path: Path) -> None:
    """Writing a report again over itself leaves the pages that it has, and files of others."""
    dead = judged(finding(None, "dead"))
    write_files(build_report(facts(dead, owners={("prod", "orders"): "team-a"})), tmp_path)
    (tmp_path / "mine.txt").touch()
    write_files(build_report(facts(dead, owners={("prod", "orders"): "team-b"})), tmp_path)
    pages = sorted(path.name for path in (tmp_path / "owners").iterdir())
    assert pages == ["team-b.html", "team-b.md"]
    assert (tmp_path / "mine.txt").exists()


def test_what_a_killed_report_left_is_in_the_way_of_none(tmp_path: Path) -> None:
    """In a container the next process has the same number as the one before."""
    (tmp_path / f".liveness.{os.getpid()}" / "owners").mkdir(parents=True)
    write_files(build_report(facts(judged(finding(None, "dead")))), tmp_path)
    assert (tmp_path / "liveness.html").exists()
