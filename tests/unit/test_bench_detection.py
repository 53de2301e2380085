"""The bench of detection reads, writes and counts as it says."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.bench.detection.defaults import defaults_of
from tests.bench.detection.events import EventsError, events
from tests.bench.detection.fleet import seen_by_exporter, topics
from tests.bench.detection.reference import calibrations_of_topics
from tests.bench.detection.silences import trial
from tests.bench.detection.spool import write_spool
from tests.bench.detection.streams import generate

MONDAY = 1_704_067_200


def test_records_that_nobody_saw_are_one_advance_afterwards() -> None:
    """What was written while no exporter looked shows once, when one looks again."""
    times, vague = seen_by_exporter(np.array([1.0, 5.0, 6.0, 9.0]), [(4.0, 8.0)])
    assert times.tolist() == [1.0, 8.0, 9.0]
    assert vague.tolist() == [False, True, False]


@pytest.mark.parametrize("name", ["mine.csv", "mine.csv.gz"])
def test_any_csv_becomes_a_fleet(tmp_path: Path, name: str) -> None:
    """Streams start from the Monday before the first record, whatever the order of lines and columns."""
    path, messages = tmp_path / name, list[str]()
    rows = [f"{MONDAY + day * 86_400},b" for day in (*range(100), 99)] + [f"{MONDAY + 90_000}.5,a"]
    text = "\n".join(["unix_ts,stream_id", *reversed(rows)]).encode()
    path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    fleet = events(path, messages.append)
    assert (fleet.name, fleet.start, fleet.weeks) == ("mine", MONDAY, 15)
    assert [(stream.topic, len(stream.times)) for stream in fleet.streams] == [("a", 1), ("b", 100)]
    assert "102 records of 2 streams in 15 weeks; 1 at the same moment" in messages[0]
    bare = tmp_path / "bare.csv"
    bare.write_text("".join(f"b,{MONDAY + week * 604_800}\n\n" for week in range(13)), encoding="utf-8")
    assert events(bare).weeks == 13


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x;1700000000\n", "line 1: must be a record.*separated by commas"),
        ("stream_id,unix_ts\n", "holds no records"),
        ("", "holds no records"),
        ("x,1700000000\nx,1700000000,1\n", "cannot be read.*line 2"),
        ("stream_id,unix_ts\n\nx,1700000000\nx,soon\n", "line 4: must name a stream.*got 'x,soon'"),
        ("x,1700000000\nx,2024-01-01T00:00:00Z\n", "line 2: .*as `date --date MOMENT"),
        ("stream_id,unix_ts\nx,1700000000000\n", "line 2: .*divide milliseconds by 1000"),
        ("stream_id,unix_ts\n,1700000000\n", "line 2: must name a stream"),
        ("stream_id,unix_ts\nx,1700000000\nx,1700600000\n", "spans 2 weeks.*from line 2 to line 3"),
    ],
)
def test_a_csv_that_cannot_be_judged_by_is_refused(tmp_path: Path, text: str, message: str) -> None:
    """The error names the file, the place, the rule and the next step."""
    path = tmp_path / "mine.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(EventsError, match=message) as refused:
        events(path)
    assert str(path) in str(refused.value)


def test_a_csv_that_is_torn_or_missing_is_refused(tmp_path: Path) -> None:
    """It is an error of one line, not half a set."""
    path = tmp_path / "mine.csv.gz"
    path.write_bytes(gzip.compress(b"x,1700000000\n")[:-9])
    for one in (path, tmp_path / "none.csv"):
        with pytest.raises(EventsError, match=f"{one} cannot be read"):
            events(one)


def test_thresholds_of_a_week_know_nothing_later() -> None:
    """They are the same where the set ends earlier."""
    fleet = generate(per_kind=2, weeks=16)
    streams = [replace(stream, times=stream.times[stream.times < 13 * 168]) for stream in fleet.streams]
    short = replace(fleet, weeks=13, streams=streams)
    then, now = (calibrations_of_topics(trial(topics(one)), accepted=100.0) for one in (short, fleet))
    for week in range(8, 14):
        assert then[week] == now[week]
    assert now[16].judged_topic_weeks > now[10].judged_topic_weeks > 0


def test_spool_accounts_for_every_record_once(tmp_path: Path) -> None:
    """What the product is given holds each record of each partition once, and moments only where they were seen."""
    fleet = generate(per_kind=1, weeks=17)
    write_spool(fleet, tmp_path)
    rows = pq.read_table(next((tmp_path / "spool" / "windows").glob("*.parquet"))).to_pylist()
    by_stream: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for one in rows:
        by_stream.setdefault((one["topic"], one["partition"]), []).append(one)
    for stream in fleet.streams:
        own = by_stream.get((stream.topic, stream.partition), [])
        assert sum(each["records"] for each in own) == len(stream.times)
        assert all(each["end_offset"] - each["start_offset"] == each["records"] for each in own)
        assert [each["start_offset"] for each in own[1:]] == [each["end_offset"] for each in own[:-1]]
        assert all((each["first_advance"] is None) == (each["future_timestamps"] == 1) for each in own)


def test_what_the_defaults_give_is_counted_on_any_fleet() -> None:
    """All topics are judged, and past the ninth week the accepted rate is promised."""
    head, cells = defaults_of([generate(per_kind=2, weeks=16)])
    found = dict(zip(head, cells, strict=True))
    assert (found["topics"], found["judged"], found["promised then"]) == ("25", "100 %", "1.00")
    assert 2.4 < float(found["threshold at the end"]) <= 4.0
    assert float(found["geo. mean h"]) < float(found["p90 h"])
