"""The report of real Delta tables."""

import json
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from exporter.storage.files import Location, open_file
from spark_rollups.report.coverage import read_coverage
from spark_rollups.report.model import ClusterCoverage
from spark_rollups.report.write import HTML, JSON, MARKDOWN, write_report
from spark_rollups.spark.failures import KnownError
from spark_rollups.store.tables import Tables
from tests.spark.report_story import (
    AS_OF,
    DAY,
    HOUR,
    WEEK_AGO,
    coverage,
    frame,
    story,
    topic,
    verdicts_now,
    write_table,
)

MINUTE = timedelta(minutes=1)


@pytest.fixture(scope="module")
def history(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole story as Delta tables, whose rows lie in files in another order than the golden files were made of."""
    folder = tmp_path_factory.mktemp("history")
    for name, rows in story().items():
        # The verdicts in two commits, for a table is rarely one file.
        write_table(spark, folder, name, reversed(rows[1:] if name == "verdicts" else rows))
        if name == "verdicts":
            write_table(spark, folder, name, rows[:1])
    return folder


@pytest.fixture(scope="module")
def reported(spark: SparkSession, history: Path) -> tuple[datetime, Location]:
    return write_report(Tables(spark, history), as_of=None)


def text(path: Location) -> str:
    with open_file(path) as file:
        return file.read().decode()


def topics(folder: Location) -> dict[str, list[str]]:
    """Section -> topics, as the JSON has them; sections without one are left out."""
    sections = json.loads(text(folder / JSON))["sections"]
    return {each["key"]: [entry["topic"] for entry in each["entries"]] for each in sections if each["entries"]}


def test_the_story_is_reported_as_in_the_golden_files(
    history: Path, reported: tuple[datetime, Location], golden: Callable[[str, str], None]
) -> None:
    folder = history / "published" / "reports" / "2026-03-03"
    assert reported == (AS_OF, folder)
    assert sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.*")) == [
        "liveness.html",
        "liveness.json",
        "liveness.md",
        "owners/_nobody.html",
        "owners/_nobody.md",
        "owners/team-payments.html",
        "owners/team-payments.md",
        "owners/web-shop.2d4924a9ec7a.html",
        "owners/web-shop.2d4924a9ec7a.md",
    ]
    golden("report.html", text(folder / HTML))
    golden("report.md", text(folder / MARKDOWN))
    golden("report.json", json.dumps(json.loads(text(folder / JSON)), indent=1) + "\n")
    golden("report-team-payments.html", text(folder / "owners" / "team-payments.html"))


def test_an_earlier_moment_is_reported_from_the_verdicts_known_then(
    spark: SparkSession, history: Path, tmp_path: Path
) -> None:
    """The newest verdicts at or before the moment count, and their age is shown when it is over 36 hours."""
    as_of, folder = write_report(Tables(spark, history), as_of=WEEK_AGO + 2 * DAY, output=tmp_path)
    assert as_of == WEEK_AGO
    assert topics(folder)["still-dead"] == ["invoices-eu"]
    assert "are 2 d older: has the rollup stopped?" in text(folder / MARKDOWN)


def test_a_report_of_the_newest_verdicts_tells_their_age_as_of_when_it_was_asked_for(
    spark: SparkSession, history: Path, tmp_path: Path
) -> None:
    """The moment chooses no verdicts, and changes nothing but the warning."""
    tables = Tables(spark, history)
    late, in_time = tmp_path / "late", tmp_path / "in-time"
    assert write_report(tables, as_of=None, asked_for=AS_OF + 30 * DAY, output=late) == (AS_OF, late)
    assert write_report(tables, as_of=None, asked_for=AS_OF + HOUR, output=in_time) == (AS_OF, in_time)
    first, *others = json.loads(text(late / JSON))["warnings"]
    assert first.endswith("30 d older: has the rollup stopped?")
    assert others == json.loads(text(in_time / JSON))["warnings"]


def test_verdicts_alone_make_a_report_that_says_what_is_missing(spark: SparkSession, tmp_path: Path) -> None:
    """On the first run, with no other table, deaths are sorted by their moment and blindness is reported."""
    write_table(spark, tmp_path, "verdicts", verdicts_now())
    _, folder = write_report(Tables(spark, tmp_path), as_of=None)
    assert topics(folder)["still-dead"] == ["invoices-eu", "audit_log_"]
    assert {"payments.settled", "orders"} < set(topics(folder)["newly-dead"])
    plain = json.loads(text(folder / JSON))
    assert [warning.split(":")[0] for warning in plain["warnings"]] == ["edge|<b>", "prod"]
    days = plain["sections"][0]["entries"][-1]["findings"][0]["days"]
    assert [day["hours"] for day in days] == [None] * 28
    assert plain["week_ago_as_of"] is None
    assert plain["summary"].endswith("there are no verdicts of a week ago to compare with.")
    assert sorted(path.name for path in (tmp_path / "tables").iterdir()) == ["notes.json", "verdicts"]


def test_no_verdicts_at_all_name_the_next_step(spark: SparkSession, history: Path, tmp_path: Path) -> None:
    with pytest.raises(KnownError, match=r"no verdicts in .*verdicts: run `topic-liveness rollup --history"):
        write_report(Tables(spark, tmp_path), as_of=None)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(KnownError, match=r"verdicts up to 2025-.*: name a later moment, or run `topic-liveness"):
        write_report(Tables(spark, history), as_of=AS_OF - 300 * DAY)


def test_a_folder_that_cannot_be_written_is_named(spark: SparkSession, history: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine", encoding="utf-8")
    with pytest.raises(KnownError, match=r"cannot write the report to .*taken: .*; name a writable folder"):
        write_report(Tables(spark, history), as_of=AS_OF, output=tmp_path / "taken")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_only_an_advance_of_the_same_topic_is_a_revival(spark: SparkSession, tmp_path: Path) -> None:
    """A new topic of the old name, and a changed verdict on the same silence, revive nothing.

    What was dead by the age of its newest record has no last advance then. Runs of each day begin seconds apart.
    """
    dead: dict[str, Any] = {"as_of": WEEK_AGO + timedelta(seconds=20), "silent": 2 * DAY}
    by_age: dict[str, Any] = {"last_advance": None, "silence_seconds": None}
    write_table(
        spark,
        tmp_path,
        "verdicts",
        [
            *topic("made-again", "dead", topic_id="old", **dead),
            *topic("other-limit", "dead", **dead),
            *topic("back-again", "dead", topic_id=None, **dead),
            *topic("back-but-quiet", "dead", **dead),
            *topic("abandoned-and-back", "retired", **dead, **by_age),
            *topic("abandoned", "retired", **dead, **by_age),
            *topic("made-again", "live", topic_id="new"),
            *topic("abandoned-and-back", "live"),
            *topic("abandoned", "retired", **by_age),
            *topic("other-limit", "quiet", silent=9 * DAY, limit=20 * DAY),
            *topic("back-again", "live", topic_id=None),
            *topic("back-but-quiet", "suspect", silent=DAY),
        ],
    )
    _, folder = write_report(Tables(spark, tmp_path), as_of=None)
    found = topics(folder)
    assert (found["suspect"], sorted(found["revived"])) == (["back-but-quiet"], ["abandoned-and-back", "back-again"])
    assert json.loads(text(folder / JSON))["week_ago_as_of"] is not None


def test_coverage_is_what_the_polls_of_all_exporters_saw(spark: SparkSession) -> None:
    """Gaps are stretches in which no exporter had a good poll, measured by the cluster's own interval."""

    def rows() -> Iterator[dict[str, Any]]:
        week = AS_OF - 7 * DAY
        yield from coverage("two", week - DAY, AS_OF - 2 * DAY)
        for row in coverage("two", AS_OF - 3 * DAY, AS_OF):
            yield row | {"exporter": "exporter-1"}
        for row in coverage("slow", week - HOUR, AS_OF):
            yield row | {"interval_seconds": 3600.0, "last_good_poll": row["window_start"] + MINUTE}
        for row in coverage("backfilled", AS_OF - 28 * DAY, AS_OF - HOUR, step=28 * DAY - HOUR):
            yield row | {"source": "backfill"}
        yield from coverage("backfilled", AS_OF - HOUR, AS_OF)
        yield from coverage("failing", week, AS_OF - DAY)
        yield from coverage("failing", AS_OF - DAY, AS_OF, good=False)
        yield from coverage("old", AS_OF - 20 * DAY, AS_OF - 19 * DAY)
        yield from coverage("later", AS_OF + HOUR, AS_OF + DAY)

    clusters, days_seen = read_coverage(frame(spark, "coverage", rows()), AS_OF, {"two", "missing", "later"})
    found: dict[str, ClusterCoverage] = {each.cluster: each for each in clusters}
    assert list(found) == ["backfilled", "failing", "later", "missing", "old", "slow", "two"]
    assert found["two"].covered_share == found["slow"].covered_share == found["backfilled"].covered_share == 1.0
    assert found["slow"].gap_limit_seconds == 3 * 3600.0
    dark_since = AS_OF - DAY - timedelta(seconds=10)
    assert found["failing"].last_good_poll == dark_since
    assert found["failing"].covered_share == pytest.approx(6 / 7, abs=1e-4)
    assert found["old"].covered_share == found["missing"].covered_share == found["later"].covered_share == 0.0
    assert found["old"].last_good_poll == AS_OF - 19 * DAY - timedelta(seconds=10)
    assert found["missing"].last_good_poll is None
    assert len(days_seen["backfilled"]) == 28
    assert len(days_seen["failing"]) == 7
    assert len(days_seen["old"]) == 2
