"""What Spark published is read whole, with its age, or said to be unusable."""

import json
import os
import random
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from exporter.domain.expectations.silence_rules import ExpectationSet
from exporter.domain.scoring.thresholds import PastAlarms
from exporter.domain.verdicts import Expectation
from exporter.history.published import Expectations, Publication
from tests.damage import DAMAGED, damage
from tests.judging import rows_in
from tests.pointer import point_to
from tests.unit.expectations import MONDAY, by_clock, by_wall
from tests.unit.expectations import publish as write

ROW = by_wall(partition=3, last_advance=None)


def publish(history: Path, *rows: Expectation, **pointer: object) -> None:
    """Write expectations and the pointer to them, with other content."""
    write(history, *rows)
    counted = {"topic": {"false_alarms": 0, "topic_weeks": 40, "promised": 0.5}}
    content = {"thresholds": {"topic": 2.0, "partition": 2.0}, "counted": counted, **pointer}
    point_to(history / "published" / "expectations-1", MONDAY, **content)


def loaded(history: Path) -> tuple[Expectations, Publication]:
    expectations = Expectations(history)
    assert expectations.refresh()
    assert expectations.published is not None
    return expectations, expectations.published


def test_nothing_published_is_not_a_problem(tmp_path: Path) -> None:
    expectations = Expectations(tmp_path)
    assert not expectations.refresh()
    assert (expectations.published, expectations.problem) == (None, None)


def test_a_published_set_is_read_by_cluster_topic_and_partition(tmp_path: Path) -> None:
    publish(tmp_path, ROW)
    expectations, published = loaded(tmp_path)
    row = rows_in(published.rows)["prod", "orders", 3]
    assert (row.as_of, row.last_advance, row.end_offset) == (MONDAY, None, 10)
    assert published.as_of == MONDAY
    assert published.past_alarms == {"topic": PastAlarms(0, 40, promised=0.5)}
    assert published.past_alarms["topic"].realised == 0.0
    assert not expectations.refresh(), "an unchanged pointer is not read again"


@pytest.mark.parametrize(
    ("pointer", "message"),
    [
        (
            {"schema_version": 9},
            r"current\.json is not a published pointer: schema_version must be 1, got 9: it was published by another",
        ),
        ({"expectations": "missing"}, r"missing is damaged"),
    ],
)
def test_an_unusable_set_is_named_and_the_last_good_one_stays(
    tmp_path: Path, pointer: dict[str, object], message: str
) -> None:
    publish(tmp_path, ROW)
    expectations, published = loaded(tmp_path)
    publish(tmp_path, ROW, **pointer)
    assert not expectations.refresh()
    assert re.search(message, expectations.problem or "")
    assert expectations.published is published


@pytest.mark.parametrize(
    ("name", "values", "rule"),
    [
        ("profile", [[1.0] * 84] * 2, "profile must have 168 rates"),
        ("partition", [0, -1], "partition must be 0 or more"),
    ],
)
def test_what_no_rollup_publishes_costs_the_set(tmp_path: Path, name: str, values: list[object], rule: str) -> None:
    """Two halves of a week are no profile, and a negative partition is no topic as a whole."""
    publish(tmp_path, by_clock([1.0] * 168), by_clock([1.0] * 168, partition=1))
    path = tmp_path / "published" / "expectations-1" / "part-0.parquet"
    rows = pq.read_table(path)
    column = pa.array(values, rows.schema.field(name).type)
    pq.write_table(rows.set_column(rows.column_names.index(name), name, column), path)
    point_to(path.parent, MONDAY)
    expectations = Expectations(tmp_path)
    assert not expectations.refresh()
    assert rule in (expectations.problem or "")


@pytest.mark.parametrize("how", DAMAGED)
def test_a_damaged_pointer_leaves_the_last_good_set_in_force(
    tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    publish(tmp_path, ROW)
    expectations, good = loaded(tmp_path)
    damage(tmp_path / "published" / "current.json", how)
    assert [expectations.refresh(), expectations.refresh()] == [False, False]
    assert expectations.published is good
    [message] = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert expectations.problem is not None and expectations.problem in message
    assert message.isprintable() and len(message) < 1_000
    (tmp_path / "published" / "current.json").unlink()
    publish(tmp_path, ROW, rows=1)
    assert expectations.refresh()
    assert expectations.problem is None


def test_every_change_of_what_is_published_is_noticed(tmp_path: Path) -> None:
    """Of 600 sets with bits flipped, cut off or put in, none is read as other values: the last good one stays."""
    publish(tmp_path, ROW)
    paths = [tmp_path / "published" / "current.json", tmp_path / "published" / "expectations-1" / "part-0.parquet"]
    whole, drawn = [path.read_bytes() for path in paths], random.Random(17)
    for number in range(600):
        path, content = paths[number % 2], bytearray(whole[number % 2])
        for _ in range(drawn.randrange(1, 4)):
            place = drawn.randrange(len(content))
            match number // 2 % 3:
                case 0:
                    content[place] ^= 1 << drawn.randrange(8)
                case 1:
                    del content[place:]
                case _:
                    content[place:place] = drawn.randbytes(drawn.randrange(1, 9))
            if not content:
                break
        path.write_bytes(content)
        expectations = Expectations(tmp_path)
        if expectations.refresh():  # a bit flipped back, or a space put in
            assert content == whole[number % 2] or json.loads(content) == json.loads(whole[0])
        else:
            assert expectations.problem is not None
        path.write_bytes(whole[number % 2])


def test_the_report_of_the_newest_day_that_counts_is_the_last_one(tmp_path: Path) -> None:
    """It is served, and its time is shown, also where that of an earlier week was written later; a draft is none."""
    expectations = Expectations(tmp_path)
    assert expectations.find_report_time() is None
    for day, written in (("2026-03-02", 2000.0), ("2026-02-23", 3000.0), ("2026-03-02/.liveness.7", 4000.0)):
        report = tmp_path / "published" / "reports" / day / "liveness.html"
        report.parent.mkdir(parents=True)
        report.write_text(day)
        os.utime(report, (written, written))
    assert expectations.find_report_time() == 2000.0
    assert expectations.report("liveness.html") == b"2026-03-02"
    assert expectations.find_report_time(lambda folder: folder.name == "2026-02-23") == 3000.0
    assert expectations.find_report_time(lambda _: False) is None


def test_only_files_of_the_last_report_are_read(tmp_path: Path) -> None:
    """A page, a list or an owner's page; a name that leads elsewhere, or a file of another kind, is none."""
    reports = tmp_path / "published" / "reports"
    expectations = Expectations(tmp_path)
    assert expectations.report("liveness.html") is None
    good = ("liveness.html", "liveness.json", "owners/team-a.html", "owners/web-shop.2d4924a9ec7a.md")
    for day in ("2026-03-03", "2026-03-10"):
        for name in (*good, "other.txt"):
            path = reports / day / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{day} {name}")
            os.utime(path, (float(day[-2:]),) * 2)
    for name in good:
        assert expectations.report(name) == f"2026-03-10 {name}".encode()
    elsewhere = ("../2026-03-03/liveness.html", "owners/../liveness.json", "/etc/passwd", "", "owners/gone.md")
    for name in ("other.txt", *elsewhere):
        assert expectations.report(name) is None


def test_a_set_without_rows_is_a_set(tmp_path: Path) -> None:
    """A fleet of which nothing is known yet promises nothing, and is no problem."""
    publish(tmp_path)
    _, published = loaded(tmp_path)
    assert (len(published.rows), ExpectationSet(published.rows).faulty) == (0, 0)
