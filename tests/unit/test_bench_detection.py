"""The bench of detection reads, writes and counts as it says."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from tests.bench.detection.defaults import defaults_of
from tests.bench.detection.events import events
from tests.bench.detection.fleet import seen_by_exporter
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


def test_what_the_defaults_give_is_counted_on_any_fleet() -> None:
    """All topics are judged, and past the ninth week the accepted rate is promised."""
    head, cells = defaults_of([generate(per_kind=2, weeks=16)])
    found = dict(zip(head, cells, strict=True))
    assert (found["topics"], found["judged"], found["promised then"]) == ("25", "100 %", "1.00")
    assert 2.4 < float(found["threshold at the end"]) <= 4.0
    assert float(found["geo. mean h"]) < float(found["p90 h"])
