"""The files of a report in its folder."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_rollups.report.build import build_report
from spark_rollups.report.folder import write_files
from tests.unit.test_report_build import facts, finding, judged, topics


@pytest.fixture
def small_disk() -> Iterator[None]:
    """No file of this process may grow beyond 20,000 bytes: to write on fails, as on a full disk."""
    before, limits = signal.signal(signal.SIGXFSZ, signal.SIG_IGN), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, before)


@pytest.mark.usefixtures("small_disk")
def test_a_full_disk_leaves_the_page_before_it(tmp_path: Path) -> None:
    """The page no longer fits: the earlier one stays, whole, and no draft of it is left."""
    (tmp_path / "liveness.html").write_text("before")
    with pytest.raises(OSError, match="too large"):
        write_files(build_report(facts(topics(**{f"t{n}": "dead" for n in range(20)}))), tmp_path)
    assert (tmp_path / "liveness.html").read_text() == "before"
    assert not list(tmp_path.glob(".*"))


def test_pages_of_owners_that_have_nothing_more_to_do_go(tmp_path: Path) -> None:
    """Writing a report again over itself leaves the pages that it has, and files of others."""
    dead = judged(finding(None, "dead"))
    write_files(build_report(facts(dead, owners={"orders": "team-a"})), tmp_path)
    (tmp_path / "mine.txt").touch()
    write_files(build_report(facts(dead, owners={"orders": "team-b"})), tmp_path)
    pages = sorted(path.name for path in (tmp_path / "owners").iterdir())
    assert pages == ["team-b.html", "team-b.md"]
    assert (tmp_path / "mine.txt").exists()
