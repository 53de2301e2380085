"""The bench's own way through the product: records to spool files, the Spark job, and what is published."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from exporter.domain.scoring.calibration import TOPIC
from tests.bench.detection.fleet import Fleet, Span, Stream, topics
from tests.bench.detection.product import product_method, replayed, write_spool
from tests.bench.detection.reference import refitted
from tests.bench.detection.silences import FIRST_WEEK, trial
from tests.bench.detection.streams import generate

pytestmark = pytest.mark.timeout(900)  # two whole rollups, on whatever machine this is

WEEKS = 10
KINDS = ("diurnal", "office hours", "nightly batch", "weekly", "hourly")
RATES = (10.0, 30.0, 400.0)
"""Of so small a fleet nothing is to be expected at the first rate, one alarm at the second, and ten at the third."""
TOGETHER, ALONE = 8, 3
"""So many topics stop as one incident, and so many others each for itself: false alarms, as all that stop twice."""
STOPPED = 8 * 168.0 + 32.0
# Twice in a day, and so counted as one topic each by the rule of incidents: four are none.
BREAKS = ((7 * 168.0 + 40.0, 7 * 168.0 + 51.0), (7 * 168.0 + 54.0, 7 * 168.0 + 65.0))
UNSEEN = (6 * 168.0 + 40.5, 6 * 168.0 + 46.5)


def silent(stream: Stream, *spans: Span) -> Stream:
    """The stream without its records in these spans."""
    times = stream.times
    for begin, end in spans:
        times = times[(times < begin) | (times >= end)]
    return replace(stream, times=times)


def small() -> Fleet:
    """Twenty topics, with an incident, silences of single topics, and a span in which no exporter looked."""
    whole = generate(per_kind=4, weeks=WEEKS)
    streams = [stream for stream in whole.streams if stream.kind in KINDS]
    silenced = [silent(stream, (STOPPED, STOPPED + 72.0)) for stream in streams[:TOGETHER]]
    for place, stream in enumerate(streams[TOGETHER : TOGETHER + ALONE]):
        begin = 7 * 168.0 + 30.0 * place
        silenced.append(silent(stream, (begin, begin + 150.0)))
    rest = streams[TOGETHER + ALONE :]
    silenced += [silent(stream, *BREAKS) if stream.kind == "hourly" else stream for stream in rest]
    return replace(whole, streams=silenced, unseen=(UNSEEN,))


def test_the_job_publishes_what_the_reference_made_by_which_the_bench_counts(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Score and limits of each week, its thresholds, topic-weeks and false alarms are equal, and so as of the past."""
    fleet = small()
    write_spool(fleet, tmp_path)
    published = replayed(spark, fleet, tmp_path, range(WEEKS - 2, WEEKS - 1), RATES, lambda _: None)
    assert published.compared > 0
    assert published.differing == 0

    made = trial(topics(fleet))
    reference = refitted(made, RATES)
    of_job, of_reference = product_method(made, published), product_method(made, reference)
    assert np.isfinite(of_reference.mean).any(), "nothing to compare"
    for name in ("mean", "spread", "limit"):
        actual, expected = (getattr(one, name)[:, FIRST_WEEK:] for one in (of_job, of_reference))
        np.testing.assert_allclose(actual, expected, rtol=1e-6, err_msg=name)

    for rate in RATES:
        for week in range(FIRST_WEEK, WEEKS + 1):
            actual, expected = (asdict(one.calibration(rate, week, TOPIC)) for one in (published, reference))
            assert actual.pop("threshold") == pytest.approx(expected.pop("threshold"), rel=1e-6), (rate, week)
            assert actual == expected, (rate, week)
