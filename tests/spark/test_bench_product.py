"""What the bench of detection takes for the product's own is what the Spark job makes of the same records."""

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest

from exporter.domain.scoring.calibration import TOPIC, AlarmBudget, calibrations
from spark_rollups.spark.frames import arrow_schema
from spark_rollups.stages.calibration import UNITS, units, unusual_from
from spark_rollups.stages.learning import LEARNED, learn_batch, monday, week_of
from spark_rollups.store.schemas import BASELINES
from tests.bench.detection.fleet import Fleet, Span, Stream, topics
from tests.bench.detection.history import first_week_of
from tests.bench.detection.reference import calibrations_of_topics
from tests.bench.detection.silences import FIRST_WEEK, trial
from tests.bench.detection.spool import write_spool
from tests.bench.detection.streams import generate
from tests.spark.spool_days import fold, struct_tables

WEEKS = 10
KINDS = ("diurnal", "office-hours", "nightly-batch", "weekly", "hourly")
RATES = (10.0, 30.0, 400.0)
"""Of so small a fleet nothing is to be expected at the first rate, one alarm at the second, and ten at the third."""
TOGETHER, ALONE = 8, 3
"""So many topics stop as one incident, and so many others each for itself: false alarms, as all that stop twice."""
STOPPED = 8 * 168.0 + 32.0
# Twice in a day, and so counted as one topic each by the rule of incidents: four are none.
BREAKS = ((7 * 168.0 + 40.0, 7 * 168.0 + 51.0), (7 * 168.0 + 54.0, 7 * 168.0 + 65.0))
UNSEEN = (6 * 168.0 + 40.5, 6 * 168.0 + 46.5)


def silent(stream: Stream, *spans: Span) -> Stream:
    times = stream.times
    for begin, end in spans:
        times = times[(times < begin) | (times >= end)]
    return replace(stream, times=times)


def small() -> Fleet:
    """Twenty topics, with an incident, silences of single topics, and a span in which no exporter looked."""
    whole = generate(per_kind=4, weeks=WEEKS)
    streams = [stream for stream in whole.streams if stream.topic.startswith(KINDS)]
    silenced = [silent(stream, (STOPPED, STOPPED + 72.0)) for stream in streams[:TOGETHER]]
    for place, stream in enumerate(streams[TOGETHER : TOGETHER + ALONE]):
        begin = 7 * 168.0 + 30.0 * place
        silenced.append(silent(stream, (begin, begin + 150.0)))
    rest = streams[TOGETHER + ALONE :]
    silenced += [silent(stream, *BREAKS) if stream.topic.startswith("hourly") else stream for stream in rest]
    return replace(whole, streams=silenced, unseen=(UNSEEN,))


def test_the_job_makes_what_the_bench_counts_by(tmp_path: Path) -> None:
    fleet = small()
    write_spool(fleet, tmp_path)
    first = first_week_of(fleet)
    nothing = arrow_schema(BASELINES).empty_table()
    weeks: dict[int, dict[str, float]] = {week: {} for week in range(first + 1, first + WEEKS + 1)}
    learned = learn_batch(fold(tmp_path).days, nothing, weeks=weeks, schema=arrow_schema(LEARNED))
    baselines, maxima = struct_tables(learned, "baseline", "maximum")

    made = trial(topics(fleet))
    reference = made.history.baselines
    names = [made.units.names[stream] for stream in reference.stream]
    expected = {
        (name, week - first): row
        for row, (name, week) in enumerate(zip(names, reference.week.tolist(), strict=True))
        if FIRST_WEEK <= week - first < WEEKS
    }
    rows = {
        (row["topic"], week_of(row["week"]) - first): row
        for row in baselines.to_pylist()
        if row["partition"] is None and row["slot_seconds"] == 3600.0
    }
    rows = {key: row for key, row in rows.items() if FIRST_WEEK <= key[1] < WEEKS}
    assert set(rows) == set(expected)
    columns = {
        "log_mean": reference.mean,
        "log_spread": reference.spread,
        "suspect_silence_seconds": reference.suspect_silence,
        "max_silence_seconds": reference.max_silence,
        "pause_slots": reference.pause,
    }
    for name, column in columns.items():
        actual = np.array([row[name] for row in rows.values()], np.float64)
        np.testing.assert_allclose(actual, column[[expected[key] for key in rows]], rtol=1e-6, err_msg=name)

    for week in range(FIRST_WEEK, WEEKS + 1):
        ended = maxima.filter(pc.less(maxima["week_ended"], monday(first + week)))
        known = unusual_from(units(ended, schema=arrow_schema(UNITS)))
        for rate in RATES:
            (of_job,) = (one for one in calibrations(known, first + week, AlarmBudget(rate)) if one.kind == TOPIC)
            by_job, wanted = asdict(of_job), asdict(calibrations_of_topics(made, accepted=rate)[week])
            for score in ("suspect_score", "dead_score"):
                assert by_job.pop(score) == pytest.approx(wanted.pop(score), rel=1e-6), (rate, week)
            assert by_job == wanted, (rate, week)
