"""What the configuration says of topics wins over all that history taught; the exporter does the same live."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from exporter.domain import SUSPECT_SHARE, Outage, TopicOverride, Verdict
from spark_rollups.evidence import duration, moment, retired_after

RULE = "override"

_QUIET_AFTER_SECONDS = 3600.0


def parse(text: str) -> tuple[TopicOverride, ...]:
    """Return the overrides that ``topic-liveness rollup`` hands over: a JSON list of TopicOverride.

    Raises ValueError with the place and the rule.
    """
    try:
        found = json.loads(text)
        overrides = tuple(TopicOverride(**{**one, "topics": str(one["topics"])}) for one in found)
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"must be a JSON list of overrides: {error}") from None
    for number, one in enumerate(overrides):
        given = (one.max_silence_seconds is not None) + (one.muted_until is not None) + bool(one.retired)
        if given != 1:
            raise ValueError(f"override {number} must hold one of max_silence_seconds, muted_until and retired")
    return overrides


def parse_outages(text: str) -> tuple[Outage, ...]:
    """Return the outages that ``topic-liveness rollup`` hands over: a JSON list of Outage. Raises ValueError."""
    try:
        return tuple(Outage(**one) for one in json.loads(text))
    except (ValueError, TypeError) as error:
        raise ValueError(f"must be a JSON list of outages: {error}") from None


def overridden(rows: DataFrame, overrides: Sequence[TopicOverride], as_of: datetime) -> DataFrame:
    """Return verdict rows in which the configuration has its way: the first override in force for a topic counts.

    ``rows`` have the columns of VERDICTS. Changed are verdict, rule, the limits, ``expected_by``,
    ``silence_score`` (null: nothing is scored), ``partitions_live`` and the evidence.
    """
    in_force = _in_force(overrides, as_of)
    if not in_force:
        return rows
    first = F.coalesce(*(F.when(concerns(one), number) for number, one in enumerate(in_force)))
    said = {
        "_limit": [F.lit(one.max_silence_seconds).cast("double") for one in in_force],
        "_fixed": [F.lit(_fixed(one)).cast("string") for one in in_force],
        "_words": [_words(one) for one in in_force],
    }
    rows = rows.withColumn("_override", first)
    rows = rows.withColumns({name: F.array(*values)[F.col("_override")] for name, values in said.items()})
    limit = F.col("_limit")
    silent_words = F.nullif(F.regexp_extract("evidence", "(silent|last advance) [^;]*", 0), F.lit(""))
    changed = {
        "verdict": F.coalesce("_fixed", _by_limit(limit, as_of)),
        "rule": F.lit(RULE),
        "max_silence_seconds": limit,
        "suspect_silence_seconds": limit * SUSPECT_SHARE,
        "expected_by": (F.col("last_advance").cast("double") + limit).cast("timestamp"),
        "silence_score": F.lit(None).cast("double"),
        "evidence": F.concat_ws("; ", silent_words, F.col("_words")),
    }
    rows = rows.withColumns(
        {name: F.when(F.col("_override").isNull(), F.col(name)).otherwise(value) for name, value in changed.items()}
    )
    live = F.col("partition").isNotNull() & F.col("verdict").isin(Verdict.LIVE.value, Verdict.QUIET.value)
    count = F.count(F.when(live, 1)).over(Window.partitionBy("cluster", "topic", "topic_id"))
    return rows.withColumn("partitions_live", count).drop("_override", *said)


def decided(overrides: Sequence[TopicOverride], as_of: datetime) -> Column:
    """Return whether an override is in force for the ``topic`` and ``cluster`` of a row."""
    return F.coalesce(*(F.when(concerns(one), True) for one in _in_force(overrides, as_of)), F.lit(False))


def _in_force(overrides: Sequence[TopicOverride], as_of: datetime) -> list[TopicOverride]:
    return [one for one in overrides if one.muted_until is None or as_of.timestamp() < one.muted_until]


def concerns(said: TopicOverride | Outage) -> Column:
    """Return whether it is said of the ``topic`` and ``cluster`` of a row."""
    concerned = F.col("topic").rlike(f"^(?:{said.topics})$")
    return concerned if said.cluster is None else concerned & (F.col("cluster") == said.cluster)


def _by_limit(limit: Column, as_of: datetime) -> Column:
    silence = F.col("silence_seconds")
    unseen = F.lit(as_of.timestamp()) - F.col("observed_until").cast("double")
    return (
        F.when(silence.isNull(), Verdict.LEARNING.value)
        .when((silence > limit) & (silence >= retired_after(limit)), Verdict.RETIRED.value)
        .when(silence > limit, Verdict.DEAD.value)
        .when(silence > SUSPECT_SHARE * limit, Verdict.SUSPECT.value)
        .when(unseen > SUSPECT_SHARE * limit, Verdict.HELD.value)
        .when(silence > _QUIET_AFTER_SECONDS, Verdict.QUIET.value)
        .otherwise(Verdict.LIVE.value)
    )


def _fixed(override: TopicOverride) -> str | None:
    """The verdict that does not depend on the silence."""
    if override.max_silence_seconds is not None:
        return None
    return Verdict.RETIRED.value if override.retired else Verdict.MUTED.value


def _words(override: TopicOverride) -> Column:
    if override.max_silence_seconds is not None:
        said = F.concat(F.lit("dead past "), duration(F.lit(override.max_silence_seconds)))
    elif override.muted_until is not None:
        said = F.concat(F.lit("muted until "), moment(F.timestamp_seconds(F.lit(override.muted_until))))
    else:
        said = F.lit("retired")
    return F.concat(said, F.lit(f", as the configuration says of {override.topics}"))
