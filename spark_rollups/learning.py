"""``daily`` -> ``baselines`` and ``maxima``, once a week, and ``calibration`` of them; whole topics at a time."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BooleanType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from exporter.domain import Outage, TopicOverride
from exporter.domain.arrays import Flags
from exporter.domain.baselines import Baselines
from exporter.domain.calibration import (
    FITTED_WEEKS,
    PARTITION,
    TOPIC,
    Accepted,
    Calibration,
    Scored,
    Threshold,
    Unusual,
    calibrations,
    judged_units,
)
from exporter.domain.days import Days, hours_of
from exporter.domain.hours import UNKNOWN, Hours
from exporter.domain.learning import baselines
from exporter.domain.maxima import Maxima, maxima
from exporter.domain.overrides import decided, in_outages
from exporter.domain.pauses import PAUSE_WEEKS
from exporter.domain.schedule import Schedule
from exporter.domain.traffic_clock import HOURS
from exporter.domain.verdicts import RETIRED_AFTER_SECONDS
from spark_rollups.batches import (
    KEY,
    Names,
    column,
    elements,
    flags,
    floats,
    integers,
    lists,
    moments,
    numbers,
    seconds,
    table_of,
    texts,
)
from spark_rollups.frames import arrow_schema, by_shard, in_groups, no_rows
from spark_rollups.schemas import BASELINES, MAXIMA, optional

LEARNED = StructType([StructField("baseline", optional(BASELINES)), StructField("maximum", optional(MAXIMA))])
"""A row holds either."""

BEGAN_WEEKS = int(RETIRED_AFTER_SECONDS // (7 * 86_400)) + 1
"""A silence that ended in a week and counts began at most so many weeks before."""

_SCHEDULE_TYPE = arrow_schema(BASELINES).field("schedule").type

_MONDAY = date(1970, 1, 5)
_WEEK_DAYS = 7


def week_of(day: date) -> int:
    """Return the number of a day's week, counted from the first Monday."""
    return (day - _MONDAY).days // _WEEK_DAYS


def monday(week: int) -> date:
    """Return the first day of a week by its number."""
    return _MONDAY + timedelta(weeks=week)


def learned(daily: DataFrame, before: DataFrame, weeks: Sequence[int], shards: int) -> DataFrame:
    """Return rows of LEARNED: the baselines of these weeks, and the maxima of the week before each.

    ``before`` are the baselines of other weeks: silences that began in these have ended since.
    """
    days = daily.where(
        (F.col("date") >= F.lit(monday(min(weeks) - PAUSE_WEEKS))) & (F.col("date") < F.lit(monday(max(weeks))))
    )
    days = days.select(*KEY, "date", "active", "unknown", "first_ms", "last_ms", "fives")
    others = before.where(
        ~F.col("week").isin([monday(week) for week in weeks])
        & (F.col("week") >= F.lit(monday(min(weeks) - 1 - BEGAN_WEEKS)))
        & (F.col("week") < F.lit(monday(max(weeks))))
        & (F.col("log_mean").isNotNull() | F.col("schedule").isNotNull())
    )
    make = functools.partial(learn_batch, weeks=tuple(weeks), schema=arrow_schema(LEARNED))
    return by_shard(days, others, shards, make, LEARNED)


def learn_batch(days: pa.Table, before: pa.Table, *, weeks: Sequence[int], schema: pa.Schema) -> pa.Table:
    """Return the rows of LEARNED of a batch of whole topics: rows of ``daily``, and of baselines of other weeks."""
    names = Names(days, before)
    hours = hours_from(days, names)
    made = list(baselines(hours, weeks)) if len(hours) else []
    in_force = [*made, baselines_from(before, names.rows[1])]
    found = maxima(hours, Baselines.joined(in_force), [week - 1 for week in weeks])
    whole = names.partition == UNKNOWN
    rows = table_of(_maxima_columns(names, found, whole), _part(schema, "maximum"))
    parts = [_structs(schema, None, rows)]
    parts += [
        _structs(schema, table_of(_baseline_columns(names, one), _part(schema, "baseline")), None) for one in made
    ]
    return pa.concat_tables(parts)


def _part(schema: pa.Schema, name: str) -> pa.Schema:
    return pa.schema(list(schema.field(name).type))


def _structs(schema: pa.Schema, one: pa.Table | None, other: pa.Table | None) -> pa.Table:
    count = (one if one is not None else other).num_rows  # type: ignore[union-attr]
    arrays = []
    for field, table in zip(schema, (one, other), strict=True):
        arrays.append(pa.nulls(count, field.type) if table is None else table.to_struct_array())
    return pa.Table.from_arrays(arrays, schema=schema)


def hours_from(days: pa.Table, names: Names) -> Hours:
    """Return the hours of rows of ``daily``, which ``names`` numbers first."""
    stream, day = names.rows[0], integers(column(days, "date"))
    order = np.lexsort((day, stream))
    bits = {name: integers(column(days, name))[order].astype(np.int32) for name in ("active", "unknown")}
    nothing = np.zeros(len(order), np.int64)
    lists_of = {name: elements(column(days, name), order) for name in ("first_ms", "last_ms", "fives")}
    rest = dict.fromkeys(Days.__dataclass_fields__, nothing)
    return hours_of(Days(**{**rest, "stream": stream[order], "day": day[order], **bits, **lists_of}))  # type: ignore[arg-type]


def baselines_from(table: pa.Table, stream: Any) -> Baselines:
    """Return rows of ``baselines`` whose streams have these numbers."""
    count = table.num_rows
    day = integers(column(table, "week"))
    profiles = column(table, "profile")
    return Baselines(
        stream=stream,
        week=(day - (_MONDAY - date(1970, 1, 1)).days) // _WEEK_DAYS,
        slot_seconds=floats(column(table, "slot_seconds")),
        profile=elements(profiles, np.arange(count)).reshape(-1, HOURS).astype(np.float64),
        step=floats(column(table, "clock_step")),
        mean=floats(column(table, "log_mean")),
        spread=floats(column(table, "log_spread")),
        suspect_silence=floats(column(table, "suspect_silence_seconds")),
        max_silence=floats(column(table, "max_silence_seconds")),
        active_slots=integers(column(table, "active_slots")),
        weeks=integers(column(table, "weeks")),
        history_start=seconds(column(table, "history_start")),
        observed=floats(column(table, "observed_seconds")),
        largest_silence=floats(column(table, "largest_silence_seconds")),
        largest_silence_end=seconds(column(table, "largest_silence_end")),
        largest_missed=floats(column(table, "largest_missed")),
        weekly_scores=np.full((count, 8), np.nan),
        pause=np.nan_to_num(floats(column(table, "pause_slots"))),
        schedule=_schedules_from(column(table, "schedule")),
        together=np.zeros(count, np.bool_),
    )


def _schedules_from(values: pa.Array) -> NDArray[np.object_]:
    found = np.full(len(values), None, object)
    for row in np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False)).tolist():
        found[row] = Schedule(**values[row].as_py())
    return found


def _days_of(weeks: Any) -> pa.Array:
    first = (_MONDAY - date(1970, 1, 1)).days
    return pa.array((np.asarray(weeks) * _WEEK_DAYS + first).astype(np.int32), pa.int32()).cast(pa.date32())


def _baseline_columns(names: Names, made: Baselines) -> dict[str, Any]:
    scored = ~np.isnan(made.weekly_scores)
    count = len(made)
    return {
        **names.of(made.stream),
        "week": _days_of(made.week),
        "slot_seconds": made.slot_seconds,
        "profile": lists(made.profile.reshape(-1), np.full(count, HOURS), pa.float32()),
        "clock_step": made.step,
        "log_mean": numbers(made.mean),
        "log_spread": numbers(made.spread),
        "suspect_silence_seconds": numbers(made.suspect_silence),
        "max_silence_seconds": numbers(made.max_silence),
        "active_slots": made.active_slots,
        "weeks": made.weeks,
        "history_start": moments(made.history_start),
        "observed_seconds": made.observed,
        "largest_silence_seconds": numbers(made.largest_silence),
        "largest_silence_end": moments(made.largest_silence_end),
        "largest_missed": numbers(made.largest_missed),
        "weekly_scores": lists(made.weekly_scores[scored], scored.sum(1), pa.float32()),
        "pause_slots": made.pause,
        "schedule": pa.array([None if one is None else asdict(one) for one in made.schedule], _SCHEDULE_TYPE),
    }


def _maxima_columns(names: Names, found: Maxima, whole: Flags) -> dict[str, Any]:
    return {
        **names.of(found.stream),
        "kind": pa.array(np.where(whole[found.stream], TOPIC, PARTITION), pa.string()),
        "week": _days_of(found.week),
        "week_ended": _days_of(found.week_ended),
        "score": numbers(found.score),
        "overdue": moments(found.overdue),
        "silent_from": moments(found.silent_from),
        "silent_until": moments(found.silent_until),
    }


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

FITTED = StructType(
    [
        StructField("kind", StringType()),
        StructField("suspect", DoubleType()),
        StructField("dead", DoubleType()),
        StructField("promised", DoubleType()),
        StructField("fitted_topic_weeks", LongType()),
        StructField("judged_topic_weeks", LongType()),
        StructField("false_alarms", LongType()),
        StructField("outages", LongType()),
        StructField("outages_alarmed", LongType()),
        StructField("alarms_a_week", DoubleType()),
        StructField("outages_seen", DoubleType()),
        StructField("topics", LongType()),
    ]
)


@dataclass(frozen=True, slots=True)
class Exclusions:
    """What the configuration says of topics as of a moment (Unix seconds)."""

    outages: Sequence[Outage]
    overrides: Sequence[TopicOverride]
    as_of: float


def calibrate(
    found: DataFrame,
    as_of: datetime,
    accepted: Accepted,
    outages: Sequence[Outage] = (),
    overrides: Sequence[TopicOverride] = (),
    shards: int = 1,
) -> Sequence[Calibration]:
    """Return the calibration of each kind of stream, made of the weeks that were over at ``as_of``.

    ``found`` are rows of MAXIMA. Thresholds are not fitted to topic-weeks in which a topic was unusually silent in one
    of its known ``outages``: these are counted as outages. Left out are topics that one of the ``overrides`` is in
    force for, with all their weeks: no threshold judges them, and since when is unknown.
    """
    now = week_of(as_of.astimezone(UTC).date())
    counted = units_of(found, now, Exclusions(outages, overrides, as_of.timestamp()), shards)
    make = functools.partial(_fit, now=now, accepted=accepted, schema=arrow_schema(FITTED))
    rows = in_groups(counted, None, make, FITTED).collect()
    made = {
        row.kind: Calibration(
            row.kind,
            Threshold(row.suspect, row.dead),
            row.promised,
            row.fitted_topic_weeks,
            row.judged_topic_weeks,
            row.false_alarms,
            row.outages,
            row.outages_alarmed,
            row.alarms_a_week,
            row.outages_seen,
            row.topics,
        )
        for row in rows
    }
    if not made:
        nothing = unusual_from(arrow_schema(UNITS).empty_table())
        return calibrations(nothing, now, accepted)
    return [made[kind] for kind in (TOPIC, PARTITION)]


def units_of(found: DataFrame, now: int, exclusions: Exclusions, shards: int) -> DataFrame:
    """Return rows of UNITS of the weeks before ``now`` that thresholds are fitted to or judged by."""
    past = found.where(
        (F.col("week_ended") < F.lit(monday(now))) & (F.col("week") >= F.lit(monday(now - 2 * FITTED_WEEKS)))
    )
    others = no_rows(found.sparkSession, StructType(found.schema.fields[:2]))  # cluster and topic
    make = functools.partial(units, exclusions=exclusions, schema=arrow_schema(UNITS))
    return by_shard(past, others, shards, make, UNITS)


def units(found: pa.Table, _: pa.Table, *, exclusions: Exclusions, schema: pa.Schema) -> pa.Table:
    """Return the rows of UNITS of a batch of whole topics; ``found`` are rows of MAXIMA."""
    names = Names(found)
    number, name = names.topic[names.rows[0]], names.name[names.rows[0]]
    first = pa.array(np.unique(name, return_index=True)[1])
    keys = list(zip(*(column(found, one).take(first).to_pylist() for one in KEY[:2]), strict=True))
    free = ~decided(keys, exclusions.overrides, exclusions.as_of)[name]
    begin, end = seconds(column(found, "silent_from")), seconds(column(found, "silent_until"))
    excused = in_outages(keys, name, (begin, end), exclusions.outages)
    rows = np.flatnonzero(free)
    first = (_MONDAY - date(1970, 1, 1)).days
    week, ended = ((integers(column(found, name)) - first) // _WEEK_DAYS for name in ("week", "week_ended"))
    whole = texts(column(found, "kind")) == TOPIC
    score = floats(column(found, "score"))
    scored = Scored(whole[rows], number[rows], week[rows], ended[rows], score[rows], excused[rows])
    counted, some = (pa.array(rows[chosen]) for chosen in judged_units(scored))
    told = pa.table({"kind": column(found, "kind"), "cluster": column(found, "cluster"), "week": week.astype(np.int32)})
    weeks = told.take(counted).group_by(["kind", "cluster", "week"]).aggregate([([], "count_all")])
    silences = {
        **{name: column(found, name).take(some) for name in ("kind", "cluster", "topic", "topic_id")},
        "week": week[some].astype(np.int32),
        "week_ended": ended[some].astype(np.int32),
        "score": score[some],
        "since": numbers(begin[some]),
        "overdue": numbers(seconds(column(found, "overdue"))[some]),
        "labelled": excused[some],
    }
    of_weeks = {name: column(weeks, name) for name in ("kind", "cluster", "week")}
    counts = {**of_weeks, "topics": column(weeks, "count_all")}
    return pa.concat_tables([table_of(counts, schema), table_of(silences, schema)])


def unusual_from(told: pa.Table) -> Unusual:
    """Return rows of UNITS as thresholds are fitted to them."""
    count = integers(column(told, "topics"))
    some, weeks = np.flatnonzero(count < 0), np.flatnonzero(count >= 0)
    names = Names(told)
    kind, cluster = texts(column(told, "kind")), texts(column(told, "cluster"))
    week = integers(column(told, "week"))
    judged: dict[tuple[str, str, int], int] = {}
    for row in weeks.tolist():
        key = str(kind[row]), str(cluster[row]), int(week[row])
        judged[key] = judged.get(key, 0) + int(count[row])
    return Unusual(
        kind[some].astype(np.str_),
        cluster[some].astype(np.str_),
        names.topic[names.rows[0]][some].astype(np.int64),
        week[some],
        integers(column(told, "week_ended"))[some],
        floats(column(told, "score"))[some],
        floats(column(told, "since"))[some],
        floats(column(told, "overdue"))[some],
        judged,
        flags(column(told, "labelled"))[some],
    )


def _fit(told: pa.Table, *, now: int, accepted: Accepted, schema: pa.Schema) -> pa.Table:
    made = calibrations(unusual_from(told), now, accepted)
    return table_of(
        {
            "kind": pa.array([one.kind for one in made]),
            "suspect": np.array([one.threshold.suspect for one in made]),
            "dead": np.array([one.threshold.dead for one in made]),
            "promised": pa.array([one.promised for one in made], pa.float64()),
            "fitted_topic_weeks": np.array([one.fitted_topic_weeks for one in made], np.int64),
            "judged_topic_weeks": np.array([one.judged_topic_weeks for one in made], np.int64),
            "false_alarms": np.array([one.false_alarms for one in made], np.int64),
            "outages": np.array([one.outages for one in made], np.int64),
            "outages_alarmed": np.array([one.outages_alarmed for one in made], np.int64),
            "alarms_a_week": pa.array([one.alarms_a_week for one in made], pa.float64()),
            "outages_seen": pa.array([one.outages_seen for one in made], pa.float64()),
            "topics": pa.array([one.topics for one in made], pa.int64()),
        },
        schema,
    )
