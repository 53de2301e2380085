"""``streams`` and ``baselines`` -> ``verdicts`` and expectations, whole topics at a time, then incidents by cluster."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DoubleType, IntegerType, StringType, StructField, StructType, TimestampType

from exporter.domain.arrays import Flags, Rows
from exporter.domain.history.observation import do_streams_exist
from exporter.domain.history.streams import Streams, add_topics
from exporter.domain.judging.evidence import INCIDENT
from exporter.domain.judging.incidents import ClusterStreams as Together
from exporter.domain.judging.incidents import Silent, hold
from exporter.domain.judging.rollup_verdicts import LIMITS, Verdicts
from exporter.domain.learning.baselines import Baselines
from exporter.domain.learning.drops import OngoingDrop
from exporter.domain.learning.hours import UNKNOWN
from exporter.domain.learning.pauses import add_recent_pauses
from exporter.domain.learning.rest_days import Rest, Rests
from exporter.domain.learning.slots import week_of
from exporter.domain.polls.layout import NO_LEADER
from exporter.domain.polls.readings import State
from exporter.domain.polls.silence import TIMESTAMPS_DIFFER_SECONDS
from exporter.domain.scoring.calibration import Threshold
from exporter.domain.verdicts import VERDICT_CODES, VERDICTS, TopicOverride, Verdict
from spark_rollups.spark.batches import (
    KEY,
    Names,
    column,
    flags,
    floats,
    integers,
    moments,
    numbers,
    seconds,
    table_of,
    texts,
    values_at,
)
from spark_rollups.spark.frames import apply_by_shard, arrow_schema
from spark_rollups.stages.learning import DAYS, baselines_from, hours_from
from spark_rollups.store.schemas import EXPECTATIONS, optional
from spark_rollups.store.schemas import VERDICTS as VERDICT_COLUMNS

LEARNED = {
    "rule": "learned_rule",
    "suspect_silence_seconds": "learned_suspect_seconds",
    "max_silence_seconds": "learned_max_seconds",
}
"""Columns of verdicts that an override changes -> the columns of JUDGED with the learned values that are published."""

_MORE = [field for field in EXPECTATIONS.fields if field.name not in (*VERDICT_COLUMNS.names, "schema_version")]

JUDGED = optional(
    StructType(
        [
            *VERDICT_COLUMNS.fields,
            *_MORE,
            StructField(LEARNED["rule"], StringType()),
            StructField(LEARNED["suspect_silence_seconds"], DoubleType()),
            StructField(LEARNED["max_silence_seconds"], DoubleType()),
            StructField("leader", IntegerType()),
            StructField("has_expectation", BooleanType()),
            StructField("unusual", BooleanType()),
            StructField("holdable", BooleanType()),
            StructField("hold_expired", BooleanType()),
            StructField("overdue", TimestampType()),
            StructField("evidence_if_held", StringType()),
        ]
    )
)
"""Verdict rows, the columns published beside them, and those that incidents are decided by."""

HELD = StructType(
    [
        *(StructField(f"held_{name}", IntegerType() if name == "partition" else StringType()) for name in KEY),
        StructField("held_by", StringType()),
        StructField("held_why", StringType()),
    ]
)
"""Streams that an incident may hold, the name of the incident, and its description."""

CLOCKS_DIFFER_SECONDS = 3600.0
"""A last advance that is so much later than the moment that is judged is not dated: a clock was ahead."""

_FLAGS = ("has_expectation", "unusual", "holdable", "hold_expired")
_ALARMING = (Verdict.SUSPECT.value, Verdict.DEAD.value)
_GONE = [VERDICT_CODES[Verdict.DEAD], VERDICT_CODES[Verdict.RETIRED]]


@dataclass(frozen=True, slots=True)
class Rule:
    """By what streams are judged as of a moment (Unix seconds)."""

    as_of: float
    thresholds: Mapping[str, Threshold]
    overrides: Sequence[TopicOverride]
    polled: Mapping[str, int]
    """When each cluster was last polled, in Unix microseconds."""
    rests: Rests


def judge_streams(streams: DataFrame, baselines: DataFrame, recent: DataFrame, rule: Rule, shards: int) -> DataFrame:
    """Return rows of JUDGED of all partitions that exist, and of their topics.

    ``streams`` are rows of ``folding.STREAMS_NOW``, ``baselines`` of BASELINES: those of the weeks of last advances.
    ``recent`` are the rows of ``daily`` of the last RECENT_DAYS.
    """
    make = functools.partial(judge_batch, rule=rule, schema=arrow_schema(JUDGED))
    learned = baselines.unionByName(recent.select(*DAYS), allowMissingColumns=True)
    return apply_by_shard(streams, learned, shards, make, JUDGED)


def hold_incidents(rows: DataFrame) -> DataFrame:
    """Turn ``suspect`` and ``dead`` into ``held`` where an incident explains the silence."""
    silent = rows.where("has_expectation").select(*KEY, "leader", *_FLAGS, "last_advance", "overdue")
    together = silent.groupBy("cluster").applyInArrow(_hold, HELD)
    same = [F.col(name).eqNullSafe(F.col(f"held_{name}")) for name in KEY]
    found = rows.join(together, same, "left")
    is_held = F.col("held_cluster").isNotNull() & F.col("verdict").isin(*_ALARMING)
    return found.withColumns(
        {
            "verdict": F.when(is_held, Verdict.HELD.value).otherwise(F.col("verdict")),
            "incident": F.when(is_held, F.col("held_by")).otherwise(F.col("incident")),
            "dead_since": F.when(~is_held, F.col("dead_since")),
            "evidence": F.when(
                is_held, F.replace(F.coalesce("evidence_if_held", "evidence"), F.lit(INCIDENT), F.col("held_why"))
            ).otherwise(F.col("evidence")),
        }
    ).select(*rows.columns)


def judge_batch(streams: pa.Table, learned: pa.Table, *, rule: Rule, schema: pa.Schema) -> pa.Table:
    """Return the rows of JUDGED of a batch of whole topics; ``learned`` are their baselines and recent days."""
    is_baseline = pc.is_valid(column(learned, "week"))
    baseline_rows, days = learned.filter(is_baseline), learned.filter(pc.invert(is_baseline))
    names = Names(streams, baseline_rows, days)
    row = np.full(len(names), UNKNOWN, np.intp)
    row[names.rows[0]] = np.arange(streams.num_rows)
    there = _existing(streams, names, row, rule)
    if not there.any():
        return schema.empty_table()
    numbers_of_topics = np.unique(names.topic[there], return_inverse=True)
    partitions = _streams(streams, names, np.flatnonzero(there), row, numbers_of_topics[1].ravel(), rule)
    whole = names.partitions + numbers_of_topics[0]
    topics = _streams(streams, names, whole, row, np.arange(len(whole)), rule)
    subjects = add_topics(partitions, topics)
    number = np.concatenate([np.flatnonzero(there), whole])
    baselines = baselines_from(baseline_rows, names.rows[1])
    in_force = _in_force(baselines, number, subjects.last_advance)
    if days.num_rows:
        hours = hours_from(days, names.rows[2])
        baselines = add_recent_pauses(baselines, np.unique(in_force[in_force >= 0]), hours, rule.as_of)
    found = Verdicts(subjects, baselines, in_force, rule.as_of, rule.thresholds, rule.overrides)
    return table_of(
        {
            **_columns(names, number, subjects, found, in_force, baseline_rows),
            "pause_slots": numbers(np.append(baselines.pause, np.nan)[in_force]),
            "as_of": moments(np.full(len(subjects), rule.as_of)),
        },
        schema,
    )


def _existing(streams: pa.Table, names: Names, row: Rows, rule: Rule) -> Flags:
    cluster = names.keys["cluster"].to_pylist()
    listed_at = values_at(integers(column(streams, "listed_at")), row, UNKNOWN)
    deleted = values_at(flags(column(streams, "deleted")), row, False)
    there = do_streams_exist(cluster, names.name, names.topic_id, listed_at, deleted, rule.polled)
    return there & (np.arange(len(names)) < names.partitions)


def _streams(streams: pa.Table, names: Names, chosen: Rows, row: Rows, topic: Rows, rule: Rule) -> Streams:
    keys = names.get(chosen)
    row = row[chosen]

    def values_of(name: str, read: Any, otherwise: Any) -> Any:
        return values_at(read(column(streams, name)), row, otherwise)

    last, until = values_of("last_advance", seconds, np.nan), values_of("observed_until", seconds, np.nan)
    state, newest = values_of("state", texts, None), values_of("max_timestamp", seconds, np.nan)
    # Where the newest record is later, history missed an advance.
    missed = (state == State.OBSERVED.value) & (newest > last + TIMESTAMPS_DIFFER_SECONDS) & (newest <= rule.as_of)
    last = np.where(missed, newest, last)
    # An exporter whose clock is ahead tells that there was an advance, and not when.
    last = np.where(last > rule.as_of + CLOCKS_DIFFER_SECONDS, np.nan, np.minimum(last, rule.as_of))
    # Nothing later than the moment that is judged is proof of a silence at it. An advance was looked at.
    until = np.minimum(np.maximum(until, np.where(np.isnan(last), until, last)), rule.as_of)
    since = values_of("unreadable_since", seconds, np.nan)
    with np.errstate(invalid="ignore"):
        unread = ~np.isnan(since) & ~(since < until)
    end, latest = values_of("end_offset", floats, np.nan), values_of("latest_offset", floats, np.nan)
    end = np.where(np.isnan(end), latest, end)
    first_poll, first_end = values_of("polled_from", seconds, np.nan), values_of("polled_offset", floats, np.nan)
    unchanged = (end == first_end) & (np.isnan(latest) | (latest == first_end)) & (first_poll <= until)
    proved_age = unchanged & (state == State.OBSERVED.value) & (newest <= rule.as_of)
    cluster, name = texts(keys["cluster"]), texts(keys["topic"])
    resting = np.empty(len(chosen), object)
    resting[:] = [rule.rests.get(*key) for key in zip(cluster.tolist(), name.tolist(), strict=True)]
    falling = np.empty(len(chosen), object)
    falling[:] = [rule.rests.find_ongoing_drop(*key) for key in zip(cluster.tolist(), name.tolist(), strict=True)]
    return Streams(
        topic=topic,
        cluster=cluster,
        name=name,
        topic_id=texts(keys["topic_id"]),
        partition=names.partition[chosen].astype(np.int32),
        leader=values_of("leader", integers, NO_LEADER).astype(np.int32),
        state=np.where(unread, State.UNREADABLE.value, state),
        reason=np.where(unread, values_of("unreadable_reason", texts, None), values_of("reason", texts, None)),
        observed_until=until,
        unreadable_since=np.where(unread, since, np.nan),
        last_advance=last,
        unchanged_since=np.where(unchanged, first_poll, np.nan),
        polled_from=first_poll,
        newest=np.where(proved_age, newest, np.nan),
        known_since=values_of("known_since", seconds, np.nan),
        known_slots=values_of("known_slots", integers, 0),
        end_offset=end,
        records_7d=np.maximum(values_of("records_7d", integers, 0), 0),
        rests=resting,
        falling=falling,
    )


def _in_force(baselines: Baselines, number: Rows, last_advance: Any) -> Rows:
    return baselines.find_rows(number, week_of(np.nan_to_num(last_advance, nan=-1.0)))


def _columns(
    names: Names, number: Rows, subjects: Streams, found: Verdicts, row: Rows, baselines: pa.Table
) -> dict[str, Any]:
    taken = pa.array(row, pa.int64(), mask=row < 0)

    def take_baseline(name: str) -> pa.Array:
        return column(baselines, name).take(taken)

    clocked = pc.if_else(pc.is_valid(take_baseline("log_mean")), taken, None)
    return {
        **names.get(number),
        **{name: pa.array(getattr(subjects, name), pa.string()) for name in ("state", "reason")},
        **{name: moments(getattr(subjects, name)) for name in ("last_advance", "observed_until", "polled_from")},
        **{name: getattr(subjects, name) for name in ("records_7d", "leader")},
        **{name: take_baseline(name) for name in _OF_BASELINE},
        # A profile promises something together with what it is compared with, and nothing without.
        **{name: column(baselines, name).take(clocked) for name in ("profile", "clock_step")},
        **{name: pa.array(getattr(found, name), pa.string()) for name in ("rule", "incident", *_EVIDENCE)},
        **{name: moments(getattr(found, name)) for name in ("history_start", "suspect_from", "expected_by", "overdue")},
        **{name: numbers(getattr(found, name)) for name in _NUMBERS},
        **{name: getattr(found, name) for name in (*_COUNTS, *_FLAGS)},
        **{LEARNED[name]: numbers(found.learned[name]) for name in LIMITS},
        LEARNED["rule"]: pa.array(found.learned["rule"], pa.string()),
        "verdict": pa.array(np.array([one.value for one in VERDICTS], object)[found.verdict], pa.string()),
        "end_offset": numbers(subjects.end_offset, pa.int64()),
        "dead_since": moments(np.where(np.isin(found.verdict, _GONE), found.expected_by, np.nan)),
        "rests": pa.array([[_rest(one) for one in rests] for rests in found.rests], _REST_TYPE),
        "falling": pa.array(list(map(_falling, subjects.falling)), _FALLING_TYPE),
        "replication": pa.nulls(len(subjects), pa.string()),
    }


_NUMBERS = ("silence_seconds", "missed_slots", "largest_missed", *LIMITS, "silence_score")
_COUNTS = ("active_slots", "weeks", "suspect_score", "dead_score", "partitions", "partitions_live", "slot_seconds")
_EVIDENCE = ("evidence", "evidence_if_held")
_OF_BASELINE = (
    *("observed_seconds", "largest_silence_seconds", "largest_silence_end", "log_mean", "log_spread", "schedule"),
)


def _rest(rest: Rest) -> dict[str, object]:
    return rest._asdict() | _span(rest)


def _falling(drop: OngoingDrop | None) -> dict[str, object] | None:
    if drop is None:
        return None
    return drop._asdict() | _span(drop)


def _span(one: Rest | OngoingDrop) -> dict[str, int]:
    return {"since": round(one.since * 1e6), "until": round(one.until * 1e6)}


_REST_TYPE, _FALLING_TYPE = (arrow_schema(EXPECTATIONS).field(name).type for name in ("rests", "falling"))


def _hold(rows: pa.Table) -> pa.Table:
    names = Names(rows)
    number = names.rows[0]
    has_expectation, unusual, holdable, hold_expired = of_each = np.zeros((len(_FLAGS), len(names)), np.bool_)
    of_each[:, number] = [flags(column(rows, name)) for name in _FLAGS]
    since, overdue = (np.full(len(names), np.nan) for _ in range(2))
    since[number], overdue[number] = seconds(column(rows, "last_advance")), seconds(column(rows, "overdue"))
    silent = Silent(has_expectation, unusual, holdable, hold_expired, since, overdue)
    leader = np.full(len(names), NO_LEADER, np.intp)
    leader[number] = integers(column(rows, "leader"), NO_LEADER)
    part = slice(0, names.partitions)
    whole = slice(names.partitions, len(names))
    found = hold(
        Together(
            names=texts(names.get(np.arange(names.partitions, len(names)))["topic"]).tolist(),
            of_topics=silent[whole],
            topic=names.topic[part],
            leader=leader[part],
            of_partitions=silent[part],
        )
    )
    incident = np.concatenate([found.partitions, found.topics])
    together = np.flatnonzero(incident >= 0)
    by = [found.incidents[number] for number in incident[together]]
    return table_of(
        {
            **{f"held_{name}": values for name, values in names.get(together).items()},
            "held_by": pa.array([one.name for one in by], pa.string()),
            "held_why": pa.array([str(one) for one in by], pa.string()),
        },
        arrow_schema(HELD),
    )
