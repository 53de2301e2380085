"""``maxima`` -> ``calibration``: thresholds, fitted to the unusual silences of past weeks."""

from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DoubleType, IntegerType, LongType, StringType, StructField, StructType

from exporter.domain.learning.rest_days import Calendar, Rests
from exporter.domain.overrides import are_in_outages, are_overridden
from exporter.domain.scoring.calibration import (
    FITTED_WEEKS,
    TOPIC,
    AlarmBudget,
    Calibration,
    TopicMaxima,
    Unusual,
    calibrations,
    find_judged_units,
)
from exporter.domain.verdicts import Outage, TopicOverride
from spark_rollups.spark.batches import KEY, Names, column, flags, floats, integers, numbers, seconds, table_of, texts
from spark_rollups.spark.frames import arrow_schema, shard_of_topic
from spark_rollups.stages.learning import monday, week_of, weeks_from

UNITS = StructType(
    [
        StructField("kind", StringType()),
        StructField("cluster", StringType()),
        StructField("topic", StringType()),
        StructField("topic_id", StringType()),
        StructField("partition", IntegerType()),
        StructField("week", IntegerType()),
        StructField("topics", LongType()),
        StructField("week_ended", IntegerType()),
        StructField("score", DoubleType()),
        StructField("since", DoubleType()),
        StructField("overdue", DoubleType()),
        StructField("labelled", BooleanType()),
    ]
)
"""How many topic-weeks count in a week (``topics``), or an unusual silence of a topic in one of them."""


def calibrate(
    found: DataFrame,
    as_of: datetime,
    accepted: AlarmBudget,
    outages: Sequence[Outage] = (),
    overrides: Sequence[TopicOverride] = (),
    calendars: Sequence[Calendar] = (),
    shards: int = 1,
) -> Sequence[Calibration]:
    """Return the calibration of each kind of stream, made of the weeks that were over at ``as_of``.

    ``found`` are rows of MAXIMA. Thresholds are not fitted to topic-weeks in which a topic was unusually silent in one
    of its known ``outages``: these are counted as outages. Nor are they fitted to silences over holidays of
    ``calendars``. Left out are topics that one of the ``overrides`` is in force for, with all their weeks: no threshold
    judges them, and since when is unknown.
    """
    now = week_of(as_of.astimezone(UTC).date())
    ended = found.where(
        (F.col("week_ended") < F.lit(monday(now))) & (F.col("week") >= F.lit(monday(now - 2 * FITTED_WEEKS)))
    )
    schema, at = arrow_schema(UNITS), as_of.timestamp()

    def make(rows: pa.Table) -> pa.Table:
        return units(rows, outages=outages, overrides=overrides, calendars=calendars, as_of=at, schema=schema)

    made = ended.groupBy(shard_of_topic(shards)).applyInArrow(make, UNITS)
    return calibrations(unusual_from(made.toArrow()), now, accepted)


def units(
    found: pa.Table,
    *,
    outages: Sequence[Outage] = (),
    overrides: Sequence[TopicOverride] = (),
    calendars: Sequence[Calendar] = (),
    as_of: float = 0.0,
    schema: pa.Schema,
) -> pa.Table:
    """Return rows of UNITS, which thresholds are fitted to or judged by, of a batch of whole topics.

    ``found`` are rows of MAXIMA; overrides are those of a moment in Unix seconds.
    """
    names = Names(found)
    number, name = names.topic[names.rows[0]], names.name[names.rows[0]]
    first = pa.array(np.unique(name, return_index=True)[1])
    keys = list(zip(*(column(found, one).take(first).to_pylist() for one in KEY[:2]), strict=True))
    free = ~are_overridden(keys, overrides, as_of)[name]
    begin, end = seconds(column(found, "silent_from")), seconds(column(found, "silent_until"))
    known, rested = Rests(calendars), np.zeros(len(name), np.bool_)
    holidays = [known.get(*key) for key in keys]
    for row in np.flatnonzero(begin < end).tolist():
        rested[row] = any(one.since < end[row] and one.until > begin[row] for one in holidays[name[row]])
    excused = are_in_outages(keys, name, (begin, end), outages) | rested
    rows = np.flatnonzero(free)
    week, ended = (weeks_from(column(found, name)) for name in ("week", "week_ended"))
    whole = texts(column(found, "kind")) == TOPIC
    score = floats(column(found, "score"))
    scored = TopicMaxima(whole[rows], number[rows], week[rows], ended[rows], score[rows], excused[rows])
    counted, some = (pa.array(rows[chosen]) for chosen in find_judged_units(scored))
    unit_weeks = pa.table(
        {"kind": column(found, "kind"), "cluster": column(found, "cluster"), "week": week.astype(np.int32)}
    )
    weeks = unit_weeks.take(counted).group_by(["kind", "cluster", "week"]).aggregate([([], "count_all")])
    silences = {
        **{name: column(found, name).take(some) for name in ("kind", "cluster", "topic", "topic_id")},
        "week": week[some].astype(np.int32),
        "week_ended": ended[some].astype(np.int32),
        "score": numbers(np.where(rested, np.nan, score)[some]),
        "since": numbers(begin[some]),
        "overdue": numbers(seconds(column(found, "overdue"))[some]),
        "labelled": excused[some],
    }
    of_weeks = {name: column(weeks, name) for name in ("kind", "cluster", "week")}
    counts = {**of_weeks, "topics": column(weeks, "count_all")}
    return pa.concat_tables([table_of(counts, schema), table_of(silences, schema)])


def unusual_from(rows: pa.Table) -> Unusual:
    """Return rows of UNITS as thresholds are fitted to them."""
    count = integers(column(rows, "topics"))
    some, weeks = np.flatnonzero(count < 0), np.flatnonzero(count >= 0)
    names = Names(rows)
    kind, cluster = texts(column(rows, "kind")), texts(column(rows, "cluster"))
    week = integers(column(rows, "week"))
    judged: dict[tuple[str, str, int], int] = {}
    for row in weeks.tolist():
        key = str(kind[row]), str(cluster[row]), int(week[row])
        judged[key] = judged.get(key, 0) + int(count[row])
    return Unusual(
        kind[some].astype(np.str_),
        cluster[some].astype(np.str_),
        names.topic[names.rows[0]][some].astype(np.int64),
        week[some],
        integers(column(rows, "week_ended"))[some],
        floats(column(rows, "score"))[some],
        floats(column(rows, "since"))[some],
        floats(column(rows, "overdue"))[some],
        judged,
        flags(column(rows, "labelled"))[some],
    )
