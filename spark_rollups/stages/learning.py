"""``daily`` -> ``baselines`` and ``maxima``, once a week; whole topics at a time."""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import date, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from exporter.domain.arrays import Flags, Rows
from exporter.domain.history.days import Days, hours_of
from exporter.domain.history.rows import Source
from exporter.domain.learning.baselines import Baselines
from exporter.domain.learning.baselines_of_streams import baselines
from exporter.domain.learning.hours import UNKNOWN, Hours, Integers
from exporter.domain.learning.pauses import PAUSE_WEEKS
from exporter.domain.learning.schedule import Schedule
from exporter.domain.learning.traffic_clock import HOURS
from exporter.domain.scoring.calibration import PARTITION, TOPIC
from exporter.domain.scoring.weekly_scores import Maxima, maxima
from exporter.domain.verdicts import RETIRED_AFTER_SECONDS
from spark_rollups.spark.batches import (
    KEY,
    Names,
    column,
    elements,
    floats,
    integers,
    lists,
    moments,
    numbers,
    seconds,
    structs_of,
)
from spark_rollups.spark.frames import apply_by_shard, arrow_schema
from spark_rollups.store.schemas import BASELINES, MAXIMA, optional

LEARNED = StructType([StructField("baseline", optional(BASELINES)), StructField("maximum", optional(MAXIMA))])
"""A row has either a baseline or a maximum."""

DAYS = (*KEY, "date", "active", "unknown", "first_ms", "last_ms", "fives")
"""The columns of ``daily`` that hours are made of."""

BEGAN_WEEKS = int(RETIRED_AFTER_SECONDS // (7 * 86_400)) + 1
"""Number of weeks before a week in which the silences began that ended in it and count."""

_FIGURES = {
    "slot_seconds": "slot_seconds",
    "step": "clock_step",
    "mean": "log_mean",
    "spread": "log_spread",
    "suspect_silence": "suspect_silence_seconds",
    "max_silence": "max_silence_seconds",
    "observed": "observed_seconds",
    "largest_silence": "largest_silence_seconds",
    "largest_missed": "largest_missed",
}
"""Numbers of Baselines, and the columns that have them."""

_SCHEDULE_TYPE = arrow_schema(BASELINES).field("schedule").type

_MONDAY = date(1970, 1, 5)
_WEEK_DAYS = 7


def week_of(day: date) -> int:
    """Return the number of a day's week, counted from the first Monday."""
    return (day - _MONDAY).days // _WEEK_DAYS


def monday(week: int) -> date:
    """Return the first day of a week by its number."""
    return _MONDAY + timedelta(weeks=week)


def weeks_from(days: pa.Array) -> Integers:
    """Return the number of the week of each day."""
    return (integers(days) - (_MONDAY - date(1970, 1, 1)).days) // _WEEK_DAYS


def learn_weeks(daily: DataFrame, before: DataFrame, polls: DataFrame, weeks: Sequence[int], shards: int) -> DataFrame:
    """Return rows of LEARNED: the baselines of these weeks, and the maxima of the week before each.

    ``before`` are the baselines of other weeks: silences that began in these have ended since. ``polls`` are rows of
    the coverage.
    """
    days = daily.where(
        (F.col("date") >= F.lit(monday(min(weeks) - PAUSE_WEEKS))) & (F.col("date") < F.lit(monday(max(weeks))))
    )
    days = days.select(*DAYS)
    others = before.where(
        ~F.col("week").isin([monday(week) for week in weeks])
        & (F.col("week") >= F.lit(monday(min(weeks) - 1 - BEGAN_WEEKS)))
        & (F.col("week") < F.lit(monday(max(weeks))))
        & (F.col("log_mean").isNotNull() | F.col("schedule").isNotNull())
    )
    make = functools.partial(learn_batch, weeks=find_last_polls(polls, weeks), schema=arrow_schema(LEARNED))
    return apply_by_shard(days, others, shards, make, LEARNED)


def find_last_polls(coverage: DataFrame, weeks: Sequence[int]) -> Mapping[int, Mapping[str, float]]:
    """Return these weeks, and the last good poll of each cluster before each, in Unix seconds."""
    good = coverage.where((F.col("source") == Source.POLL.value) & F.col("last_good_poll").isNotNull())
    begun, last = F.to_date(F.date_trunc("week", "window_start")), F.max(F.unix_micros("last_good_poll"))
    rows = good.groupBy("cluster", begun.alias("week")).agg(last.alias("last")).orderBy("last").collect()
    return {week: {row.cluster: row["last"] / 1e6 for row in rows if row.week < monday(week)} for week in weeks}


def learn_batch(
    days: pa.Table, before: pa.Table, *, weeks: Mapping[int, Mapping[str, float]], schema: pa.Schema
) -> pa.Table:
    """Return the rows of LEARNED of a batch of whole topics: rows of ``daily``, and of baselines of other weeks."""
    names = Names(days, before)
    hours = hours_from(days, names.rows[0])
    clusters = names.keys["cluster"].to_pylist()
    until = {week: np.array([polled.get(one, math.inf) for one in clusters]) for week, polled in weeks.items()}
    made = list(baselines(hours, sorted(weeks), until)) if len(hours) else []
    in_force = [*made, baselines_from(before, names.rows[1])]
    found = maxima(hours, Baselines.concatenate(in_force), [week - 1 for week in weeks])
    whole = names.partition == UNKNOWN
    tables = [structs_of(schema, maximum=_maxima_columns(names, found, whole))]
    tables += [structs_of(schema, baseline=_baseline_columns(names, one)) for one in made]
    return pa.concat_tables(tables)


def hours_from(days: pa.Table, stream: Rows) -> Hours:
    """Return the hours of rows of DAYS, of the streams with these numbers."""
    day = integers(column(days, "date"))
    order = np.lexsort((day, stream))
    bits = {name: integers(column(days, name))[order].astype(np.int32) for name in ("active", "unknown")}
    nothing = np.zeros(len(order), np.int64)
    lists_of = {name: elements(column(days, name), order) for name in ("first_ms", "last_ms", "fives")}
    rest = dict.fromkeys(Days.__dataclass_fields__, nothing)
    return hours_of(Days(**{**rest, "stream": stream[order], "day": day[order], **bits, **lists_of}))  # type: ignore[arg-type]


def baselines_from(table: pa.Table, stream: Any) -> Baselines:
    """Return rows of ``baselines`` whose streams have these numbers."""
    count = table.num_rows
    profiles = column(table, "profile")
    return Baselines(
        stream=stream,
        week=weeks_from(column(table, "week")),
        profile=elements(profiles, np.arange(count)).reshape(-1, HOURS).astype(np.float64),
        **{name: floats(column(table, of)) for name, of in _FIGURES.items()},
        active_slots=integers(column(table, "active_slots")),
        weeks=integers(column(table, "weeks")),
        history_start=seconds(column(table, "history_start")),
        largest_silence_end=seconds(column(table, "largest_silence_end")),
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
    count = len(made)
    return {
        **names.get(made.stream),
        "week": _days_of(made.week),
        **{of: numbers(getattr(made, name)) for name, of in _FIGURES.items()},
        "profile": lists(made.profile.reshape(-1), np.full(count, HOURS), pa.float32()),
        "active_slots": made.active_slots,
        "weeks": made.weeks,
        "history_start": moments(made.history_start),
        "largest_silence_end": moments(made.largest_silence_end),
        "pause_slots": made.pause,
        "schedule": pa.array([None if one is None else asdict(one) for one in made.schedule], _SCHEDULE_TYPE),
    }


def _maxima_columns(names: Names, found: Maxima, whole: Flags) -> dict[str, Any]:
    return {
        **names.get(found.stream),
        "kind": pa.array(np.where(whole[found.stream], TOPIC, PARTITION), pa.string()),
        "week": _days_of(found.week),
        "week_ended": _days_of(found.week_ended),
        "score": numbers(found.score),
        "overdue": moments(found.overdue),
        "silent_from": moments(found.silent_from),
        "silent_until": moments(found.silent_until),
    }
