"""The files of a report in its folder, and the charts in it."""

import resource
import signal
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from spark_rollups.report.build import build_report
from spark_rollups.report.tables import chart_of
from spark_rollups.report.write import write_files
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


AS_OF = datetime(2026, 3, 3, 6, 30, tzinfo=UTC)
TODAY = AS_OF.date()


def test_a_chart_of_the_past_knows_nothing_of_later_hours() -> None:
    """A topic that died in the night and came back in the afternoon has no bar of it in the report of the morning."""
    row: dict[str, Any] = {"counted": 0b1 << 15 | 0b1 << 6 | 0b1, "active": 0b1 << 15 | 0b1 << 6 | 0b1}
    row |= {"records": 700, "hour_records": [5, 20, 675], "first_ms": [0, 0, 0]}
    found = chart_of({TODAY: row, TODAY - timedelta(days=1): row}, {date(2026, 3, 1)}, AS_OF)
    assert [(day.hours, day.records) for day in found[-4:]] == [(None, None), (0, 0), (3, 700), (2, 25)]
