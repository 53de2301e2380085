"""Every table and file of the history as a StructType: names, order, types and nullability.

Column names are those of ``exporter.domain``; a contract test holds the two together. Times are
timestamps in UTC, durations are seconds (double), offsets and counts are 64-bit, ``date`` is the UTC
day by which a table is partitioned.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
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

_TEXT, _TIME, _DATE = StringType(), TimestampType(), DateType()
_COUNT, _ID, _SECONDS, _FLAG = LongType(), IntegerType(), DoubleType(), BooleanType()


def _required(name: str, kind: DataType) -> StructField:
    return StructField(name, kind, nullable=False)


def _optional(name: str, kind: DataType) -> StructField:
    return StructField(name, kind, nullable=True)


_PARTITION = (
    _required("cluster", _TEXT),
    _required("topic", _TEXT),
    _optional("topic_id", _TEXT),
    _required("partition", _ID),
)

_WINDOW_COLUMNS = (
    *_PARTITION,
    _required("window_start", _TIME),
    _required("window_end", _TIME),
    _required("exporter", _TEXT),
    _required("source", _TEXT),
    _required("polls_ok", _COUNT),
    _required("observed_seconds", _SECONDS),
    _optional("advances", _COUNT),
    _optional("records", _COUNT),
    _optional("first_advance", _TIME),
    _optional("last_advance", _TIME),
    _optional("max_inner_gap_seconds", _SECONDS),
    _optional("resolution_seconds", _SECONDS),
    _optional("start_offset", _COUNT),
    _optional("end_offset", _COUNT),
    _optional("log_start_offset", _COUNT),
    _optional("leader", _ID),
    _optional("max_timestamp", _TIME),
    _required("future_timestamps", _COUNT),
    _required("offset_regressions", _COUNT),
    _optional("reason", _TEXT),
)

_COVERAGE_COLUMNS = (
    _required("cluster", _TEXT),
    _required("exporter", _TEXT),
    _required("source", _TEXT),
    _required("window_start", _TIME),
    _required("window_end", _TIME),
    _required("polls_total", _COUNT),
    _required("polls_ok", _COUNT),
    _required("partitions_ok", _COUNT),
    _required("partitions_failed", _COUNT),
    _optional("last_good_poll", _TIME),
    _required("interval_seconds", _SECONDS),
)

_INVENTORY_COLUMNS = (
    *_PARTITION,
    _required("exporter", _TEXT),
    _required("source", _TEXT),
    _required("observed_at", _TIME),
    _optional("leader", _ID),
    _optional("earliest_offset", _COUNT),
    _optional("latest_offset", _COUNT),
    _optional("max_timestamp", _TIME),
    _required("state", _TEXT),
    _optional("reason", _TEXT),
    _optional("timestamp_type", _TEXT),
    _optional("cleanup_policy", _TEXT),
    _optional("retention_seconds", _SECONDS),
    _optional("owner", _TEXT),
    _required("deleted", _FLAG),
)

_RELATION_COLUMNS = (
    _required("cluster", _TEXT),
    _required("topic", _TEXT),
    _optional("topic_id", _TEXT),
    _required("exporter", _TEXT),
    _required("source", _TEXT),
    _required("observed_at", _TIME),
    _optional("consumer_groups", _COUNT),
    _optional("replica_of_cluster", _TEXT),
    _optional("replica_of_topic", _TEXT),
    _optional("replica_state", _TEXT),
    _optional("disk_bytes", _COUNT),
    _optional("producers", _COUNT),
    _optional("readers", _TEXT),
    _optional("groups_without_members", _COUNT),
)

_VERSION = _required("schema_version", _ID)

SPOOL_WINDOWS = StructType([*_WINDOW_COLUMNS, _VERSION])
SPOOL_COVERAGE = StructType([*_COVERAGE_COLUMNS, _VERSION])
SPOOL_INVENTORY = StructType([*_INVENTORY_COLUMNS, _VERSION])
SPOOL_RELATIONS = StructType([*_RELATION_COLUMNS, _VERSION])
"""Files below ``<history>/spool/``, written by the exporter."""

WINDOWS = StructType([*_WINDOW_COLUMNS, _required("date", _DATE)])
"""Spool windows, each once; ``date`` is that of ``window_start``."""

COVERAGE = StructType([*_COVERAGE_COLUMNS, _required("date", _DATE)])
"""Spool coverage, each once; ``date`` is that of ``window_start``."""

INVENTORY = StructType([*_INVENTORY_COLUMNS, _required("date", _DATE)])
"""Spool inventory, each once; ``date`` is that of ``observed_at``."""

RELATIONS = StructType([*_RELATION_COLUMNS, _required("date", _DATE)])
"""Spool relations, each once; ``date`` is that of ``observed_at``."""

INGESTED_FILES = StructType(
    [
        _required("table", _TEXT),
        _required("file", _TEXT),
        _required("rows", _COUNT),
        _optional("table_rows", _COUNT),
    ]
)
"""The ledger of ingest: one row for each spool file that has been taken in.

``table_rows`` is how many rows the table held once it had those of the file: it never holds fewer again.
"""

_STREAM = (
    _required("cluster", _TEXT),
    _required("topic", _TEXT),
    _optional("topic_id", _TEXT),
    _optional("partition", _ID),
)

DAILY = StructType(
    [
        *_STREAM,
        _required("date", _DATE),
        _required("active", _ID),
        _required("unknown", _ID),
        _required("counted", _ID),
        _required("records", _COUNT),
        _optional("first_advance", _TIME),
        _optional("last_advance", _TIME),
        _optional("end_offset", _COUNT),
        _required("offset_regressions", _COUNT),
        _required("source", _TEXT),
        _required("first_ms", ArrayType(IntegerType())),
        _required("last_ms", ArrayType(IntegerType())),
        _required("fives", ArrayType(ShortType())),
        _required("hour_records", ArrayType(LongType())),
        _optional("offset_before", _COUNT),
        _optional("advance_before", _TIME),
        _required("slots_before", _COUNT),
    ]
)
"""One row for each stream and UTC day on which something is known to have happened.

``active``, ``unknown`` and ``counted`` have a bit for each hour: of which an advance is known, around which records
were written at unknown moments, and of which records are counted. ``first_ms``, ``last_ms`` and ``fives`` have an
element for each active hour: its first and last advance in milliseconds within it, and a bit for each slot of five
minutes with one, 0 where the windows do not tell so finely; ``hour_records`` one for each counted hour.
``offset_before``, ``advance_before`` and ``slots_before`` are what was known as the day began: so it is made again
without the days before it. ``source`` is ``poll`` as soon as a poll contributed. The view ``hourly`` has a row for each
hour.
"""

STREAMS = StructType(
    [
        *_STREAM,
        _optional("last_advance", _TIME),
        _optional("known_since", _TIME),
        _required("known_slots", _COUNT),
        _optional("end_offset", _COUNT),
        _optional("polled_from", _TIME),
        _optional("polled_offset", _COUNT),
        _optional("listed_at", _TIME),
        _optional("deleted", _FLAG),
        _optional("state", _TEXT),
        _optional("reason", _TEXT),
        _optional("timestamp_type", _TEXT),
        _optional("leader", _ID),
        _optional("latest_offset", _COUNT),
        _optional("owner", _TEXT),
        _optional("observed_until", _TIME),
        _optional("unreadable_since", _TIME),
        _optional("unreadable_reason", _TEXT),
    ]
)
"""What is known of each stream now: its advances, how the newest inventory row lists it, how far polls prove it.

``known_slots`` counts active hours since ``known_since``; ``polled_from`` and ``polled_offset`` are its first poll.
"""

SCHEDULE = StructType(
    [
        _optional("deadlines", ArrayType(FloatType())),
        _optional("cycle_seconds", _SECONDS),
        _optional("cycle_start_seconds", _SECONDS),
        _optional("runs_a_week", _COUNT),
        _optional("late_nats", _SECONDS),
        _optional("usual_seconds", _SECONDS),
        _optional("latest_seconds", _SECONDS),
        _optional("days", _COUNT),
        _optional("weeks", _COUNT),
    ]
)
"""When the runs of a stream are due: the fields of ``exporter.domain.schedule.Schedule``, which explains them.

``deadlines`` are the 168 hours of the week; ``usual_seconds`` and ``latest_seconds`` count from the beginning of a
cycle. A schedule has all of them.
"""

REST = StructType(
    [
        _optional("since", _TIME),
        _optional("until", _TIME),
        _optional("why", _TEXT),
        _optional("seen", _FLAG),
    ]
)
"""A span in which a stream rests: the fields of ``exporter.domain.rests.Rest``. A rest has all of them."""

EARLIER_DROP = StructType([_optional("since", _TIME), _optional("until", _TIME), _optional("topics", _COUNT)])
"""The fields of ``exporter.domain.drops.EarlierDrop``: it has all of them."""

FALLING = StructType(
    [
        _optional("since", _TIME),
        _optional("until", _TIME),
        _optional("low", _COUNT),
        _optional("judged", _COUNT),
        _optional("earlier", EARLIER_DROP),
    ]
)
"""A fleet-wide drop that has not ended: the fields of ``exporter.domain.drops.OngoingDrop``. All but the last are
always there."""

DROPS = StructType(
    [
        _required("date", _DATE),
        _required("cluster", _TEXT),
        _required("judged", _COUNT),
        _required("topics", ArrayType(StringType())),
    ]
)
"""A day (UTC) on which the fleet of a cluster dropped: ``topics`` of ``judged`` ones were active in at most two
fifths of their usual hours. Days in a row are one drop."""

ACKNOWLEDGEMENTS = StructType(
    [
        _required("silence_id", _TEXT),
        _optional("cluster", _TEXT),
        _required("topics", _TEXT),
        _required("acknowledged_at", _TIME),
    ]
)
"""Alerts of dead topics that were acknowledged in Alertmanager: ``topics`` is a regular expression for whole names,
``cluster`` null means all."""

CONTRADICTIONS = StructType(
    [
        _required("as_of", _TIME),
        _required("setting", _TEXT),
        _required("entry", _TEXT),
        _required("cluster", _TEXT),
        _required("topic", _TEXT),
        _optional("since", _TIME),
        _optional("until", _TIME),
        _optional("active_hours", _COUNT),
        _optional("usual_hours", _SECONDS),
        _optional("longest_silence", _SECONDS),
        _optional("limit", _SECONDS),
        _optional("records", _COUNT),
    ]
)
"""Entries of the configuration that the history of a topic contradicts, by run: the fields of
``exporter.domain.contradictions.Contradiction``."""

BASELINES = StructType(
    [
        *_STREAM,
        _required("week", _DATE),
        _required("slot_seconds", _SECONDS),
        _required("profile", ArrayType(FloatType())),
        _required("clock_step", _SECONDS),
        _optional("log_mean", _SECONDS),
        _optional("log_spread", _SECONDS),
        _optional("suspect_silence_seconds", _SECONDS),
        _optional("max_silence_seconds", _SECONDS),
        _required("active_slots", _COUNT),
        _required("weeks", _COUNT),
        _required("history_start", _TIME),
        _optional("observed_seconds", _SECONDS),
        _optional("largest_silence_seconds", _SECONDS),
        _optional("largest_silence_end", _TIME),
        _optional("largest_missed", _SECONDS),
        _required("weekly_scores", ArrayType(FloatType())),
        _optional("pause_slots", _SECONDS),
        _optional("schedule", SCHEDULE),
    ]
)
"""What the silences of a stream that begin in a week (its Monday) are measured by; made of the weeks before it only.

``log_mean`` and ``log_spread`` are null where the evidence is too thin for the traffic clock, the two limits in seconds
where the stream is not a slow and regular one, ``schedule`` where it has none. Up to ``pause_slots`` missed slots (nats
of a schedule) a silence is a pause that the stream's own past holds.
"""

MAXIMA = StructType(
    [
        *_STREAM,
        _required("kind", _TEXT),
        _required("week", _DATE),
        _required("week_ended", _DATE),
        _optional("score", _SECONDS),
        _optional("overdue", _TIME),
        _optional("silent_from", _TIME),
        _optional("silent_until", _TIME),
    ]
)
"""The largest score of each stream's silences, by the week in which they began and that in which they ended.

``kind`` is ``topic`` or ``partition``. There is a row for each week in which a stream with a clock advanced; ``score``
is null where it was never silent. When that silence was is told where it was unusual: past the score from which an
incident may hold.
"""

CALIBRATION = StructType(
    [
        _required("as_of", _TIME),
        _required("kind", _TEXT),
        _optional("promised", _SECONDS),
        _required("suspect_score", _SECONDS),
        _required("dead_score", _SECONDS),
        _required("fitted_topic_weeks", _COUNT),
        _required("judged_topic_weeks", _COUNT),
        _required("false_alarms", _COUNT),
        _optional("realised", _SECONDS),
        _optional("realised_low", _SECONDS),
        _optional("realised_high", _SECONDS),
        _optional("outages", _COUNT),
        _optional("outages_alarmed", _COUNT),
        _optional("alarms_a_week", _SECONDS),
        _optional("outages_seen", _SECONDS),
        _optional("topics", _COUNT),
    ]
)
"""The thresholds of each ``as_of``, what they promise, and what those before them gave.

Rates are false alarms per 1,000 topic-weeks; ``promised`` is null while the prior decides more than the fleet's own
topic-weeks. ``realised_low`` and ``realised_high`` bound the rate behind ``false_alarms`` with 95 % confidence.
``outages`` are those that were repaired and had an unusual score, ``outages_alarmed`` those of them called dead.
``alarms_a_week`` and ``outages_seen``, a share of ``outages``, are what the present threshold would have given.
``topics`` is the size of the fleet, by which a rate becomes a number a week.
"""

VERDICTS = StructType(
    [
        _required("as_of", _TIME),
        _required("cluster", _TEXT),
        _required("topic", _TEXT),
        _optional("topic_id", _TEXT),
        _optional("partition", _ID),
        _required("verdict", _TEXT),
        _optional("state", _TEXT),
        _optional("reason", _TEXT),
        _optional("timestamp_type", _TEXT),
        _optional("last_advance", _TIME),
        _optional("observed_until", _TIME),
        _optional("silence_seconds", _SECONDS),
        _required("active_slots", _COUNT),
        _optional("history_start", _TIME),
        _optional("observed_seconds", _SECONDS),
        _optional("largest_silence_seconds", _SECONDS),
        _optional("largest_silence_end", _TIME),
        _required("weeks", _COUNT),
        _optional("missed_slots", _SECONDS),
        _optional("largest_missed", _SECONDS),
        _optional("suspect_silence_seconds", _SECONDS),
        _optional("max_silence_seconds", _SECONDS),
        _optional("suspect_from", _TIME),
        _optional("expected_by", _TIME),
        _required("suspect_score", _SECONDS),
        _required("dead_score", _SECONDS),
        _optional("silence_score", _SECONDS),
        _required("partitions", _COUNT),
        _required("partitions_live", _COUNT),
        _optional("end_offset", _COUNT),
        _required("records_7d", _COUNT),
        _required("slot_seconds", _SECONDS),
        _required("rule", _TEXT),
        _optional("dead_since", _TIME),
        _optional("incident", _TEXT),
        _optional("deletion_candidate", _FLAG),
        _required("evidence", _TEXT),
    ]
)
"""The judgement of each partition, and of each topic (``partition`` null), at each ``as_of``.

``partitions`` and ``partitions_live`` speak of the whole topic on every row; a partition counts as
live when its verdict is ``live`` or ``quiet``. It is silent since ``last_advance``, and
``dead_since`` is when the silence passed its limit. ``incident`` names the one by which it is held; all of its topics
have the same, and ``evidence`` says which they are. ``deletion_candidate`` is told of topics whose readers are known
(``spark_rollups.relations``).
"""

EXPECTATIONS = StructType(
    [
        _required("cluster", _TEXT),
        _required("topic", _TEXT),
        _optional("topic_id", _TEXT),
        _optional("partition", _ID),
        _required("as_of", _TIME),
        _optional("end_offset", _COUNT),
        _optional("last_advance", _TIME),
        _required("verdict", _TEXT),
        _required("evidence", _TEXT),
        _required("rule", _TEXT),
        _required("slot_seconds", _SECONDS),
        _optional("max_silence_seconds", _SECONDS),
        _optional("suspect_silence_seconds", _SECONDS),
        _optional("suspect_score", _SECONDS),
        _optional("dead_score", _SECONDS),
        _optional("profile", ArrayType(FloatType())),
        _optional("clock_step", _SECONDS),
        _optional("log_mean", _SECONDS),
        _optional("log_spread", _SECONDS),
        _optional("pause_slots", _SECONDS),
        _optional("schedule", SCHEDULE),
        _optional("rests", ArrayType(REST)),
        _optional("falling", FALLING),
        _optional("history_start", _TIME),
        _optional("observed_seconds", _SECONDS),
        _optional("largest_silence_seconds", _SECONDS),
        _optional("largest_silence_end", _TIME),
        _optional("largest_missed", _SECONDS),
        _optional("weeks", _COUNT),
        _optional("active_slots", _COUNT),
        _optional("replication", _TEXT),
        _optional("incident", _TEXT),
        _optional("weekly_scores", ArrayType(FloatType())),
        _VERSION,
    ]
)
"""The published file that the exporter reads back. ``weekly_scores`` only explains."""


def optional(schema: StructType) -> StructType:
    """Return the same columns, all of which may be null: a struct of them may be."""
    return StructType([StructField(field.name, field.dataType) for field in schema.fields])


class SchemaMismatchError(ValueError):
    """A DataFrame does not have the columns of the table it is meant for."""


def conform(df: DataFrame, schema: StructType, name: str = "table") -> DataFrame:
    """Return ``df`` with exactly the columns of ``schema``, in its order.

    Nothing is cast: a missing column or another type raises SchemaMismatchError with every problem
    at once. A null in a required column fails the running query, naming ``name`` and the column.
    Further columns of ``df`` are dropped.
    """
    found = {field.name: field for field in df.schema.fields}
    problems = []
    for field in schema.fields:
        if field.name not in found:
            problems.append(f"column {field.name} is missing")
        elif found[field.name].dataType.simpleString() != field.dataType.simpleString():
            problems.append(
                f"column {field.name} must be {field.dataType.simpleString()}, "
                f"got {found[field.name].dataType.simpleString()}"
            )
    if problems:
        raise SchemaMismatchError(f"{name}: {'; '.join(problems)}")
    columns = []
    for field in schema.fields:
        column = F.col(field.name)
        if not field.nullable and found[field.name].nullable:
            column = F.coalesce(column, F.raise_error(F.lit(f"{name}.{field.name} must not be null")))
        columns.append(column.alias(field.name, metadata=field.metadata))
    return df.select(*columns)
