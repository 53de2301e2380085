"""The bench's own way through the product: records to spool files, the Spark job, and what is published."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from tests.bench.detection.fleet import topics
from tests.bench.detection.product import product_method, replayed, write_spool
from tests.bench.detection.reference import refitted
from tests.bench.detection.silences import FIRST_WEEK, trial
from tests.bench.detection.streams import generate

pytestmark = pytest.mark.timeout(900)  # two whole rollups, on whatever machine this is

WEEKS = 10
KINDS = ("diurnal", "office hours", "nightly batch", "weekly")


def test_the_job_publishes_what_the_reference_made_by_which_the_bench_counts(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Score and limits of each week are equal, and a run as of a past week publishes those of that week."""
    whole = generate(per_kind=1, weeks=WEEKS)
    streams = {stream.kind: stream for stream in whole.streams if stream.kind in KINDS}
    fleet = replace(whole, streams=list(streams.values()), unseen=(), incidents=())
    write_spool(fleet, tmp_path)
    published = replayed(spark, fleet, tmp_path, range(WEEKS - 2, WEEKS - 1), (10.0,), lambda _: None)
    assert published.compared > 0
    assert published.differing == 0

    made = trial(topics(fleet))
    of_job, of_reference = product_method(made, published), product_method(made, refitted(made, (10.0,)))
    assert np.isfinite(of_reference.mean).any(), "nothing to compare"
    for name in ("mean", "spread", "limit"):
        told, expected = (getattr(one, name)[:, FIRST_WEEK:] for one in (of_job, of_reference))
        np.testing.assert_allclose(told, expected, rtol=1e-6, err_msg=name)
