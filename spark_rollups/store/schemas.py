"""Every table and file of the history as a StructType: names, order, types and nullability.

Times are timestamps in UTC, durations are seconds (double), offsets and counts are 64-bit, ``date`` is the UTC day by
which a table is partitioned.
"""

from inspect import get_annotations

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from exporter.domain.history.rows import INTEGERS_OF_32_BITS, MOMENTS, Coverage, Inventory, Relation, Window
from exporter.domain.learning.drops import OngoingDrop
from exporter.domain.learning.rest_days import Rest
from exporter.domain.learning.schedule import Schedule
from exporter.domain.verdicts import Expectation

TEXT, TIME, DATE = StringType(), TimestampType(), DateType()
COUNT, ID, SECONDS, FLAG = LongType(), IntegerType(), DoubleType(), BooleanType()


def make_required(name: str, kind: DataType) -> StructField:
    """Return a column without nulls."""
    return StructField(name, kind, nullable=False)


def nullable(name: str, kind: DataType) -> StructField:
    """Return a column that may have nulls."""
    return StructField(name, kind, nullable=True)


def optional(schema: StructType) -> StructType:
    """Return the same columns, all nullable, for a struct that may be null."""
    return StructType([StructField(field.name, field.dataType) for field in schema.fields])


def columns_of(row: type) -> list[StructField]:
    """Return a column for each field of a class of the core, whose values are rows; nullable where it may be None."""
    columns = []
    for name, annotation in [each for base in row.__mro__ for each in get_annotations(base).items()]:
        kind = str(getattr(annotation, "__forward_arg__", annotation))  # those of a NamedTuple are references
        if name in MOMENTS:
            found: DataType = TIME
        else:
            found = ID if name in INTEGERS_OF_32_BITS else _TYPES[kind.removesuffix(" | None")]
        columns.append(StructField(name, found, nullable=kind.endswith(" | None")))
    return columns


_TYPES: dict[str, DataType] = {
    "str": TEXT,
    "int": COUNT,
    "float": SECONDS,
    "bool": FLAG,
    "Sequence[float]": ArrayType(FloatType()),
}

VERSION = make_required("schema_version", ID)
SPOOL_WINDOWS, SPOOL_COVERAGE, SPOOL_INVENTORY, SPOOL_RELATIONS = (
    StructType([*columns_of(row), VERSION]) for row in (Window, Coverage, Inventory, Relation)
)
"""Files below ``<history>/spool/``, written by the exporter."""

WINDOWS = StructType([*columns_of(Window), make_required("date", DATE)])
"""Spool windows, each once; ``date`` is that of ``window_start``."""

COVERAGE = StructType([*columns_of(Coverage), make_required("date", DATE)])
"""Spool coverage, each once; ``date`` is that of ``window_start``."""

INVENTORY = StructType([*columns_of(Inventory), make_required("date", DATE)])
"""Spool inventory, each once; ``date`` is that of ``observed_at``."""

RELATIONS = StructType([*columns_of(Relation), make_required("date", DATE)])
"""Spool relations, each once; ``date`` is that of ``observed_at``."""

_STREAM = (
    make_required("cluster", TEXT),
    make_required("topic", TEXT),
    nullable("topic_id", TEXT),
    nullable("partition", ID),
)

DAILY = StructType(
    [
        *_STREAM,
        make_required("date", DATE),
        make_required("active", ID),
        make_required("unknown", ID),
        make_required("counted", ID),
        make_required("records", COUNT),
        nullable("first_advance", TIME),
        nullable("last_advance", TIME),
        nullable("end_offset", COUNT),
        make_required("offset_regressions", COUNT),
        make_required("source", TEXT),
        make_required("first_ms", ArrayType(IntegerType())),
        make_required("last_ms", ArrayType(IntegerType())),
        make_required("fives", ArrayType(ShortType())),
        make_required("hour_records", ArrayType(LongType())),
        nullable("offset_before", COUNT),
        nullable("advance_before", TIME),
        make_required("slots_before", COUNT),
    ]
)
"""One row for each stream and UTC day with a known event.

``active``, ``unknown`` and ``counted`` have a bit for each hour: with a known advance, with records around it that were
written at unknown moments, and with counted records. ``first_ms``, ``last_ms`` and ``fives`` have an element for each
active hour: its first and last advance in milliseconds within it, and a bit for each slot of five minutes with an
advance (0 where the windows are too coarse for that). ``hour_records`` has an element for each counted hour.
``offset_before``, ``advance_before`` and ``slots_before`` are the values known as the day began, so that the day can be
rebuilt without the days before it. ``source`` is ``poll`` as soon as a poll contributed.
"""

STREAMS = StructType(
    [
        *_STREAM,
        nullable("last_advance", TIME),
        nullable("known_since", TIME),
        make_required("known_slots", COUNT),
        nullable("end_offset", COUNT),
        nullable("polled_from", TIME),
        nullable("polled_offset", COUNT),
        nullable("listed_at", TIME),
        nullable("deleted", FLAG),
        nullable("state", TEXT),
        nullable("reason", TEXT),
        nullable("max_timestamp", TIME),
        nullable("leader", ID),
        nullable("latest_offset", COUNT),
        nullable("owner", TEXT),
        nullable("observed_until", TIME),
        nullable("unreadable_since", TIME),
        nullable("unreadable_reason", TEXT),
    ]
)
"""The present state of each stream: its advances, its newest inventory row, and up to when polls prove its silence.

``known_slots`` counts active hours since ``known_since``; ``polled_from`` and ``polled_offset`` are its first poll.
"""

SCHEDULE = optional(StructType(columns_of(Schedule)))
"""When the runs of a stream are due: the fields of ``exporter.domain.learning.schedule.Schedule``, which explains them.

``deadlines`` are the 168 hours of the week; ``usual_seconds`` and ``latest_seconds`` count from the beginning of a
cycle. A schedule has all of them.
"""

REST = optional(StructType(columns_of(Rest)))
"""A span in which a stream rests: the fields of ``exporter.domain.learning.rest_days.Rest``. A rest has all of them."""

FALLING = optional(StructType(columns_of(OngoingDrop)))
"""A fleet-wide drop that has not ended: the fields of ``exporter.domain.learning.drops.OngoingDrop``. It has all of
them."""

_TYPES |= {"Schedule": SCHEDULE, "Sequence[Rest]": ArrayType(REST), "OngoingDrop": FALLING}

DROPS = StructType(
    [
        make_required("date", DATE),
        make_required("cluster", TEXT),
        make_required("judged", COUNT),
        make_required("topics", ArrayType(StringType())),
    ]
)
"""A day (UTC) on which the fleet of a cluster dropped: ``topics`` of ``judged`` ones were active in at most two
fifths of their usual hours. Days in a row are one drop."""

BASELINES = StructType(
    [
        *_STREAM,
        make_required("week", DATE),
        make_required("slot_seconds", SECONDS),
        make_required("profile", ArrayType(FloatType())),
        make_required("clock_step", SECONDS),
        nullable("log_mean", SECONDS),
        nullable("log_spread", SECONDS),
        nullable("suspect_silence_seconds", SECONDS),
        nullable("max_silence_seconds", SECONDS),
        make_required("active_slots", COUNT),
        make_required("weeks", COUNT),
        make_required("history_start", TIME),
        nullable("observed_seconds", SECONDS),
        nullable("largest_silence_seconds", SECONDS),
        nullable("largest_silence_end", TIME),
        nullable("largest_missed", SECONDS),
        nullable("pause_slots", SECONDS),
        nullable("schedule", SCHEDULE),
    ]
)
"""What the silences of a stream that begin in a week (its Monday) are measured by; made of the weeks before it only.

``log_mean`` and ``log_spread`` are null where the evidence is too thin for the traffic clock. The two limits in seconds
are null where the stream is not a slow and regular one, and ``schedule`` is null where it has none. Up to
``pause_slots`` missed slots (nats of a schedule) a silence is a pause that the stream's own past holds.
"""

MAXIMA = StructType(
    [
        *_STREAM,
        make_required("kind", TEXT),
        make_required("week", DATE),
        make_required("week_ended", DATE),
        nullable("score", SECONDS),
        nullable("overdue", TIME),
        nullable("silent_from", TIME),
        nullable("silent_until", TIME),
    ]
)
"""The largest score of each stream's silences, by the week in which they began and that in which they ended.

``kind`` is ``topic`` or ``partition``. There is a row for each week in which a stream with a clock advanced; ``score``
is null where it was never silent. Its moments are known where it was unusual: past the score from which an incident
may hold.
"""

CALIBRATION = StructType(
    [
        make_required("as_of", TIME),
        make_required("kind", TEXT),
        nullable("promised", SECONDS),
        make_required("suspect_score", SECONDS),
        make_required("dead_score", SECONDS),
        make_required("judged_topic_weeks", COUNT),
        make_required("false_alarms", COUNT),
        nullable("realised", SECONDS),
        nullable("realised_low", SECONDS),
        nullable("realised_high", SECONDS),
        nullable("outages", COUNT),
        nullable("outages_alarmed", COUNT),
        nullable("topics", COUNT),
    ]
)
"""The thresholds of each ``as_of``, their promised rates, and the realised rates of the thresholds before them.

Rates are false alarms per 1,000 topic-weeks; ``promised`` is null while the prior decides more than the fleet's own
topic-weeks. ``realised_low`` and ``realised_high`` bound the rate behind ``false_alarms`` with 95 % confidence.
``outages`` are those that were repaired and had an unusual score, ``outages_alarmed`` those of them called dead.
``topics`` is the size of the fleet, which converts a rate to a number a week.
"""

VERDICTS = StructType(
    [
        make_required("as_of", TIME),
        make_required("cluster", TEXT),
        make_required("topic", TEXT),
        nullable("topic_id", TEXT),
        nullable("partition", ID),
        make_required("verdict", TEXT),
        nullable("state", TEXT),
        nullable("reason", TEXT),
        nullable("last_advance", TIME),
        nullable("observed_until", TIME),
        nullable("polled_from", TIME),
        nullable("silence_seconds", SECONDS),
        make_required("active_slots", COUNT),
        nullable("history_start", TIME),
        nullable("observed_seconds", SECONDS),
        nullable("largest_silence_seconds", SECONDS),
        nullable("largest_silence_end", TIME),
        make_required("weeks", COUNT),
        nullable("missed_slots", SECONDS),
        nullable("largest_missed", SECONDS),
        nullable("suspect_silence_seconds", SECONDS),
        nullable("max_silence_seconds", SECONDS),
        nullable("suspect_from", TIME),
        nullable("expected_by", TIME),
        make_required("suspect_score", SECONDS),
        make_required("dead_score", SECONDS),
        nullable("silence_score", SECONDS),
        make_required("partitions", COUNT),
        make_required("partitions_live", COUNT),
        nullable("end_offset", COUNT),
        make_required("records_7d", COUNT),
        make_required("slot_seconds", SECONDS),
        make_required("rule", TEXT),
        nullable("dead_since", TIME),
        nullable("incident", TEXT),
        make_required("evidence", TEXT),
    ]
)
"""The judgement of each partition, and of each topic (``partition`` null), at each ``as_of``.

``partitions`` and ``partitions_live`` speak of the whole topic on every row; a partition counts as
live when its verdict is ``live``, ``quiet`` or ``late``. It is silent since ``last_advance``, and
``dead_since`` is when the silence passed its limit, null where no advance is known. ``incident`` is the name of the
incident that holds it; all of its topics have the same, and ``evidence`` lists them.
"""

_EXPLAINING = ("observed_until", "missed_slots", "suspect_from", "expected_by", "silence_score")

EXPECTATIONS = StructType(
    [
        *columns_of(Expectation),
        *(VERDICTS[name] for name in _EXPLAINING),
        VERSION,
    ]
)
"""The published file that the exporter reads back. Columns after ``incident`` only explain, in ``explain``.

``rule`` and limits are the learned ones, even where an override decided on the verdict.
"""
