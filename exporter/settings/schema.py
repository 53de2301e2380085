"""The settings and their defaults. The rules of single settings are in ``rules``."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal, Self, get_args

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, model_validator

from exporter.domain import Outage, TopicOverride, TopicOwner
from exporter.settings.properties import KafkaProperties
from exporter.settings.quantities import parse_size
from exporter.settings.rules import (
    Bytes,
    Seconds,
    Section,
    at_least,
    at_most,
    check_listen,
    check_name,
    check_not_empty,
    check_owner,
    check_portable,
    check_regex,
    check_region,
    check_role,
    check_slot,
    check_window,
    default_exporter,
    to_file,
    to_folder,
    to_kafka,
    to_lower,
    to_moment,
)
from exporter.storage import Location

PartitionMetric = Literal[
    "current_offset",
    "oldest_offset",
    "last_record_timestamp",
    "staleness",
    "last_advance_timestamp",
    "expected_by",
    "silence",
    "silence_score",
    "leader",
    "replicas",
    "in_sync_replica",
    "leader_is_preferred",
    "under_replicated_partition",
    "earliest_local_offset",
    "latest_tiered_offset",
    "log_size_bytes",
]
"""The per-partition metrics that can be switched; the first six are on by default."""


def _in_order(names: tuple[PartitionMetric, ...]) -> tuple[PartitionMetric, ...]:
    return tuple(name for name in get_args(PartitionMetric) if name in names)


class AwsMskIam(Section):
    """Amazon MSK with IAM: the region of the tokens and the role to assume. Without a role, the default credentials."""

    region: Annotated[str, AfterValidator(check_region)]
    role_arn: Annotated[str, AfterValidator(check_role)] | None = None


class TopicFilter(Section):
    """Which topics are watched: regular expressions that match the whole name."""

    include: tuple[Annotated[str, AfterValidator(check_regex)], ...] = (".*",)
    exclude: tuple[Annotated[str, AfterValidator(check_regex)], ...] = ()
    internal: bool = False


class OverrideSettings(Section):
    """What is known about topics, in place of history: one of ``max_silence``, ``muted_until``, ``retired``.

    ``topics`` is a regular expression that matches whole names. ``muted_until`` is in UTC where it names no zone.
    """

    topics: Annotated[str, AfterValidator(check_portable)]
    cluster: str | None = None
    max_silence: Annotated[Seconds, at_least("1m")] | None = None
    muted_until: Annotated[datetime, BeforeValidator(to_moment)] | None = None
    retired: bool = False

    @model_validator(mode="after")
    def _only_one(self) -> Self:
        if (self.max_silence is not None) + (self.muted_until is not None) + self.retired != 1:
            raise ValueError("must hold one of max_silence, muted_until and retired: true, and only one")
        return self

    def as_override(self) -> TopicOverride:
        """Return it as the domain object."""
        muted_until = None if self.muted_until is None else self.muted_until.timestamp()
        return TopicOverride(self.topics, self.cluster, self.max_silence, muted_until, self.retired)


class OutageSettings(Section):
    """A known outage of topics. Silences within it do not count as false alarms.

    ``topics`` is a regular expression that matches whole names. Times are in UTC where they name no zone.
    """

    topics: Annotated[str, AfterValidator(check_portable)]
    cluster: str | None = None
    since: Annotated[datetime, BeforeValidator(to_moment)]
    until: Annotated[datetime, BeforeValidator(to_moment)]

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.since >= self.until:
            raise ValueError("must begin (since) before it ends (until)")
        return self

    def as_outage(self) -> Outage:
        """Return it as the domain object."""
        return Outage(self.topics, self.since.timestamp(), self.until.timestamp(), self.cluster)


class OwnerSettings(Section):
    r"""The owner of topics. The first entry that matches the whole name of a topic applies.

    ``owner`` may refer to groups of ``topics``: ``\1`` where the name of the team is part of the topic's.
    """

    topics: Annotated[str, AfterValidator(check_regex)]
    owner: Annotated[str, AfterValidator(check_owner)]
    cluster: str | None = None

    @model_validator(mode="after")
    def _groups_exist(self) -> Self:
        try:
            re.sub(self.topics, self.owner, "")
        except (re.error, IndexError) as error:
            raise ValueError(f"must quote in owner only groups that topics has: {error}") from None
        return self

    def as_owner(self) -> TopicOwner:
        """Return it as the domain object."""
        return TopicOwner(self.topics, self.owner, self.cluster)


class PollSettings(Section):
    """How often clusters are polled, and with how many requests at once. Durations in seconds."""

    interval: Annotated[Seconds, at_least("5s"), at_most("1d")] = 30.0
    request_timeout: Annotated[Seconds, at_least("1s"), at_most("1h")] = 10.0
    """The upper bound is that of librdkafka (2.16.1)."""
    chunk_size: Annotated[int, Field(ge=1, le=10_000)] = 250
    calls_in_flight: Annotated[int, Field(ge=1, le=64)] = 4
    missed_polls: Annotated[int, Field(ge=1, le=1000)] = 3
    future_slack: Annotated[Seconds, at_least("0s")] = 60.0
    config_refresh: Annotated[Seconds, at_least("1s")] = 3600.0
    earliest_interval: Annotated[Seconds, at_least("0s")] = 300.0
    """Maximum age of the first offset of a partition; with 0s every poll looks it up."""


class TieredSettings(Section):
    """How often partitions with remote storage are looked up, besides the polls, and at which rate. Seconds."""

    interval: Annotated[Seconds, at_least("5s"), at_most("1d")] = 300.0
    lookups_per_second: Annotated[int, Field(ge=1, le=1_000_000)] = 100


class InspectionSettings(Section):
    """What brokers are asked besides offsets, how often and at which rate. Seconds."""

    producers: bool = False
    log_sizes: bool = False
    interval: Annotated[Seconds, at_least("5s"), at_most("1d")] = 300.0
    lookups_per_second: Annotated[int, Field(ge=1, le=1_000_000)] = 1000


class GroupSettings(Section):
    """Which consumer groups are watched, how often, and with how many requests at once. Seconds.

    ``include`` and ``exclude`` are regular expressions that match whole names.
    """

    enabled: bool = True
    include: tuple[Annotated[str, AfterValidator(check_regex)], ...] = (".*",)
    exclude: tuple[Annotated[str, AfterValidator(check_regex)], ...] = ()
    interval: Annotated[Seconds, at_least("5s"), at_most("1d")] = 60.0
    calls_in_flight: Annotated[int, Field(ge=1, le=64)] = 4
    missed_sweeps: Annotated[int, Field(ge=0, le=1000)] = 3
    time_lag: bool = True
    tolerance: Annotated[Seconds, at_least("0s")] = 5.0
    """The largest uncertainty of a time lag: this, or 5 % of the lag where that is more."""
    lookups_per_second: Annotated[int, Field(ge=1, le=1_000_000)] = 2000
    """Maximum rate of time look-ups at each broker."""


class ReplicaSettings(Section):
    r"""A pair of clusters: ``target`` holds replicas of topics of ``source``. Also how replicas are named.

    ``include`` and ``exclude`` are regular expressions that match whole names of source topics. ``alias`` is
    MirrorMaker's name of the source cluster. ``pattern`` matches whole names of source topics, and ``replacement`` is
    the name of the replica, with ``\1`` for a group. Durations in seconds.
    """

    source: str
    target: str
    policy: Literal["default", "identity", "regex"] = "default"
    alias: Annotated[str, AfterValidator(check_not_empty)] | None = None
    separator: Annotated[str, AfterValidator(check_not_empty)] = "."
    pattern: Annotated[str, AfterValidator(check_regex)] | None = None
    replacement: str | None = None
    include: tuple[Annotated[str, AfterValidator(check_regex)], ...] = (".*",)
    exclude: tuple[Annotated[str, AfterValidator(check_regex)], ...] = ()
    interval: Annotated[Seconds, at_least("1s"), at_most("1d")] = 30.0
    lookups_per_second: Annotated[int, Field(ge=1, le=1_000_000)] = 500
    behind_after: Annotated[Seconds, at_least("0s")] = 60.0
    stopped_after: Annotated[Seconds, at_least("1s")] = 300.0
    trailing_markers: Annotated[int, Field(ge=0, le=1_000)] = 1

    @model_validator(mode="after")
    def _one_naming(self) -> Self:
        if self.source == self.target:
            raise ValueError("must name two clusters: source and target are the same")
        regex = self.policy == "regex"
        if (self.pattern is not None, self.replacement is not None) != (regex, regex):
            raise ValueError("must hold pattern and replacement with policy: regex, and only then")
        if self.alias is not None and self.policy != "default":
            raise ValueError("must hold alias with policy: default only: no other puts it before a name")
        try:
            re.sub(self.naming[0], self.naming[1], "")
        except (re.error, IndexError) as error:
            raise ValueError(f"must hold a replacement that fits its pattern ({error})") from None
        return self

    @property
    def naming(self) -> tuple[str, str]:
        """The pattern for whole names of source topics, and the name of the replica (a template of ``re``)."""
        if self.pattern is not None and self.replacement is not None:
            return self.pattern, self.replacement
        prefix = "" if self.policy == "identity" else (self.alias or self.source) + self.separator
        return "(.*)", prefix.replace("\\", r"\\") + r"\1"


class ClusterSettings(Section):
    """One Kafka cluster; ``name`` is the value of the label ``kafka_cluster``."""

    name: Annotated[str, AfterValidator(check_name)]
    kafka: Annotated[KafkaProperties, BeforeValidator(to_kafka)]
    topics: TopicFilter = TopicFilter()
    poll: PollSettings = PollSettings()
    """What differs from ``Settings.poll`` for this cluster; ``Settings.poll_of`` merges both."""
    groups: GroupSettings = GroupSettings()
    """What differs from ``Settings.groups`` for this cluster; ``Settings.groups_of`` merges both."""
    aws_msk_iam: AwsMskIam | None = None

    @model_validator(mode="after")
    def _one_way_in(self) -> Self:
        if self.aws_msk_iam is not None and (given := [name for name in self.kafka if name.startswith("sasl.")]):
            raise ValueError(f"must hold aws_msk_iam or {given[0]} under kafka, and only one")
        return self


class HistorySettings(Section):
    """Where history is written, and how much of it is kept. Seconds and bytes."""

    enabled: bool = True
    folder: Annotated[Location, PlainValidator(to_folder)] = Path("topic-liveness-history")
    window: Annotated[Seconds, AfterValidator(check_window)] = 300.0
    spool_retention: Annotated[Seconds, at_least("1h")] = 14 * 86400.0
    max_bytes: Annotated[Bytes, at_least("1MiB", parse_size)] = 10 * 2**30


class ExpectationSettings(Section):
    """The maximum age of published expectations, in seconds; the exporter ignores older ones."""

    max_age: Annotated[Seconds, at_least("1m")] = 8 * 86400.0


class BackfillSettings(Section):
    """How far back ``backfill`` goes, the length of its slots, and its rate of look-ups. Seconds."""

    horizon: Annotated[Seconds, at_least("1h"), at_most("3650d")] = 56 * 86400.0
    slot: Annotated[Seconds, AfterValidator(check_slot)] = 3600.0
    lookups_per_second: Annotated[int, Field(ge=1, le=1_000_000)] = 2000
    calls_in_flight: Annotated[int, Field(ge=1, le=64)] = 2


class RollupSettings(Section):
    """What ``rollup`` passes to Spark."""

    master: Annotated[str, AfterValidator(check_not_empty)] = "local[*]"
    false_alarms_per_1000_topic_weeks: Annotated[float, Field(ge=0.01, le=1000.0)] = 2.0


class MetricsSettings(Section):
    """Which series are exposed; ``partition`` lists the per-partition metrics."""

    granularity: Literal["partition", "topic"] = "partition"
    partition: Annotated[tuple[PartitionMetric, ...], AfterValidator(_in_order)] = (
        "current_offset",
        "oldest_offset",
        "last_record_timestamp",
        "staleness",
        "last_advance_timestamp",
        "expected_by",
    )


class WebSettings(Section):
    """The address of the HTTP server, and its web configuration file in the format of Prometheus exporters."""

    listen: Annotated[str, AfterValidator(check_listen)] = "0.0.0.0:9797"
    config_file: Annotated[Path, BeforeValidator(to_file)] | None = None


class LogSettings(Section):
    """Level and format of the log."""

    level: Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(to_lower)] = "info"
    format: Literal["text", "json"] = "text"


class Settings(Section):
    """All settings, validated and frozen; created by ``load_settings``."""

    clusters: tuple[ClusterSettings, ...] = ()
    exporter: Annotated[str, AfterValidator(check_name)] = Field(default_factory=default_exporter)
    poll: PollSettings = PollSettings()
    tiered: TieredSettings = TieredSettings()
    inspection: InspectionSettings = InspectionSettings()
    groups: GroupSettings = GroupSettings()
    replicas: tuple[ReplicaSettings, ...] = ()
    history: HistorySettings = HistorySettings()
    expectations: ExpectationSettings = ExpectationSettings()
    backfill: BackfillSettings = BackfillSettings()
    rollup: RollupSettings = RollupSettings()
    metrics: MetricsSettings = MetricsSettings()
    overrides: tuple[OverrideSettings, ...] = ()
    outages: tuple[OutageSettings, ...] = ()
    owners: tuple[OwnerSettings, ...] = ()
    web: WebSettings = WebSettings()
    log: LogSettings = LogSettings()

    def poll_of(self, cluster: ClusterSettings) -> PollSettings:
        """Return the poll settings of a cluster: its own, and ``poll`` for the rest."""
        own = {name: getattr(cluster.poll, name) for name in cluster.poll.model_fields_set}
        return self.poll.model_copy(update=own)

    def groups_of(self, cluster: ClusterSettings) -> GroupSettings:
        """Return the group settings of a cluster: its own, and ``groups`` for the rest."""
        own = {name: getattr(cluster.groups, name) for name in cluster.groups.model_fields_set}
        return self.groups.model_copy(update=own)
