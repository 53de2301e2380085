"""The settings and their rules. Defaults are spelled as a person would write them.

Every rule is a ValueError whose text reads on from the setting's name: ``must be at least 5s``.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal, Self, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from exporter.model import Outage, TopicOverride, TopicOwner
from exporter.settings.properties import KafkaProperties, broken_rules
from exporter.settings.quantities import parse_duration, parse_size

BROKEN_RULES = "broken_rules"
"""Error type that carries several (key, rule) pairs in its context."""

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

_LISTEN = re.compile(r"(?:[\w.-]*|\[[0-9A-Fa-f:.%]+\]):(?P<port>\d{1,5})", re.ASCII)


def _at_least(minimum: str, parse: Callable[[object], float] = parse_duration) -> AfterValidator:
    least = parse(minimum)

    def check(value: float) -> float:
        if value < least:
            raise ValueError(f"must be at least {minimum}")
        return value

    return AfterValidator(check)


def _at_most(maximum: str) -> AfterValidator:
    most = parse_duration(maximum)

    def check(value: float) -> float:
        if value > most:
            raise ValueError(f"must be at most {maximum}")
        return value

    return AfterValidator(check)


Seconds = Annotated[float, BeforeValidator(parse_duration)]
Bytes = Annotated[int, BeforeValidator(parse_size)]


def _safe_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name, re.ASCII):
        raise ValueError("must be 1 to 100 letters, digits, '.', '_' or '-', starting with a letter or digit")
    return name


def _regex(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"must be a regular expression ({error})") from None
    return pattern


_UNALIKE = re.compile(r"(?<!\\)(\(\?(?!:|=|!|<=|<!|i\))|\{(?!\d+(,\d*)?\})|&&|\[[^\]]*\[)")
"""What Python and Java read differently: named groups, most flags, ``{`` as itself, sets within sets."""


def _portable(pattern: str) -> str:
    if found := _UNALIKE.search(pattern):
        raise ValueError(f"must be a regular expression that Java reads alike, without {found[0]!r}")
    return _regex(pattern)


def _moment(value: object) -> datetime:
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    except ValueError:
        raise ValueError("must be a date such as 2026-04-01, or a moment such as 2026-04-01T06:00Z") from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _listen(address: str) -> str:
    match = _LISTEN.fullmatch(address)
    if match is None or int(match["port"]) > 65535:
        raise ValueError("must be HOST:PORT, such as 0.0.0.0:9797 or [::]:9797")
    return address


def _window(seconds: float) -> float:
    if seconds < 1 or 3600 % seconds:
        raise ValueError("must divide an hour evenly, such as 1m, 5m or 15m")
    return seconds


def _slot(seconds: float) -> float:
    if seconds < 60 or 3600 % seconds or not seconds.is_integer():
        raise ValueError("must divide an hour evenly and be at least 1m, such as 1h, 15m or 5m")
    return seconds


def _not_empty(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be empty")
    return text


def _owner(text: str) -> str:
    if len(text) > 200 or not text.isprintable():
        raise ValueError("must be at most 200 printable characters")
    if re.search(r"\\(?![1-9]|g<)", text):
        raise ValueError(r"must have a backslash only before a group of topics, such as \1 or \g<team>")
    return _not_empty(text)


def _folder(value: object) -> Path:
    if isinstance(value, str | Path) and str(value).strip():
        return Path(value).expanduser()
    raise ValueError("must name a folder")


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _in_order(names: tuple[PartitionMetric, ...]) -> tuple[PartitionMetric, ...]:
    return tuple(name for name in get_args(PartitionMetric) if name in names)


def _kafka(value: object) -> KafkaProperties:
    if isinstance(value, KafkaProperties):
        return value
    if isinstance(value, dict):
        if rules := tuple(broken_rules(value)):
            raise PydanticCustomError(BROKEN_RULES, "breaks rules", {"rules": rules})
        return KafkaProperties.of(value)
    raise PydanticCustomError("dict_type", "must be a mapping of librdkafka properties")


def _region(name: str) -> str:
    if not re.fullmatch(r"[a-z]{2,}(-[a-z]+)+-\d+", name, re.ASCII):
        raise ValueError("must be an AWS region, such as eu-central-1")
    return name


def _role(arn: str) -> str:
    if not re.fullmatch(r"arn:aws[\w-]*:iam::\d{12}:role/[\w+=,.@/-]+", arn, re.ASCII):
        raise ValueError("must be the ARN of a role, such as arn:aws:iam::123456789012:role/liveness")
    return arn


def default_exporter() -> str:
    """The host's name, with whatever a label or file name cannot carry replaced by ``_``."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", socket.gethostname()).lstrip("._-")[:100] or "exporter"


class Section(BaseModel):
    """A frozen group of settings that refuses what it does not know."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, arbitrary_types_allowed=True, validate_default=True
    )


class AwsMskIam(Section):
    """Amazon MSK with IAM: where tokens are for, and the role to take on; without one, credentials as found."""

    region: Annotated[str, AfterValidator(_region)]
    role_arn: Annotated[str, AfterValidator(_role)] | None = None


class TopicFilter(Section):
    """Which topics are watched: regular expressions that match the whole name."""

    include: tuple[Annotated[str, AfterValidator(_regex)], ...] = (".*",)
    exclude: tuple[Annotated[str, AfterValidator(_regex)], ...] = ()
    internal: bool = False


class OverrideSettings(Section):
    """What is known of topics better than history can: one of ``max_silence``, ``muted_until``, ``retired``.

    ``topics`` is a regular expression that matches whole names. ``muted_until`` is in UTC where it names no
    other zone.
    """

    topics: Annotated[str, AfterValidator(_portable)]
    cluster: str | None = None
    max_silence: Annotated[Seconds, _at_least("1m")] | None = None
    muted_until: Annotated[datetime, BeforeValidator(_moment)] | None = None
    retired: bool = False

    @model_validator(mode="after")
    def _only_one(self) -> Self:
        if (self.max_silence is not None) + (self.muted_until is not None) + self.retired != 1:
            raise ValueError("must hold one of max_silence, muted_until and retired: true, and only one")
        return self

    def as_override(self) -> TopicOverride:
        """Return it in the words that judge."""
        muted_until = None if self.muted_until is None else self.muted_until.timestamp()
        return TopicOverride(self.topics, self.cluster, self.max_silence, muted_until, self.retired)


class OutageSettings(Section):
    """When topics were down and known to be: their silences then tell nothing of how often alarms are false.

    ``topics`` is a regular expression that matches whole names. Moments are in UTC where they name no other zone.
    """

    topics: Annotated[str, AfterValidator(_portable)]
    cluster: str | None = None
    since: Annotated[datetime, BeforeValidator(_moment)]
    until: Annotated[datetime, BeforeValidator(_moment)]

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.since >= self.until:
            raise ValueError("must begin (since) before it ends (until)")
        return self

    def as_outage(self) -> Outage:
        """Return it in the words that judge."""
        return Outage(self.topics, self.since.timestamp(), self.until.timestamp(), self.cluster)


class OwnerSettings(Section):
    r"""Who answers for topics; the first entry that matches a topic's whole name counts.

    ``owner`` may quote groups of ``topics``: ``\1`` where the team's name is part of the topic's.
    """

    topics: Annotated[str, AfterValidator(_regex)]
    owner: Annotated[str, AfterValidator(_owner)]
    cluster: str | None = None

    @model_validator(mode="after")
    def _groups_exist(self) -> Self:
        try:
            re.sub(self.topics, self.owner, "")
        except (re.error, IndexError) as error:
            raise ValueError(f"must quote in owner only groups that topics has: {error}") from None
        return self

    def as_owner(self) -> TopicOwner:
        """Return it in the words of the vocabulary."""
        return TopicOwner(self.topics, self.owner, self.cluster)


class PollSettings(Section):
    """How often and how hard the clusters are asked. Durations in seconds."""

    interval: Annotated[Seconds, _at_least("5s")] = 30.0
    request_timeout: Annotated[Seconds, _at_least("1s"), _at_most("1h")] = 10.0
    """Its upper bound is that of librdkafka's calls (2.16.1)."""
    chunk_size: Annotated[int, Field(ge=1, le=10_000)] = 250
    calls_in_flight: Annotated[int, Field(ge=1, le=64)] = 4
    missed_polls: Annotated[int, Field(ge=1, le=1000)] = 3
    future_slack: Annotated[Seconds, _at_least("0s")] = 60.0
    config_refresh: Annotated[Seconds, _at_least("1s")] = 3600.0


class TieredSettings(Section):
    """How often and how hard partitions with remote storage are looked at, beside the polls. Seconds."""

    interval: Annotated[Seconds, _at_least("5s")] = 300.0
    lookups_per_second: Annotated[int, Field(ge=1, le=1_000_000)] = 100


class InspectionSettings(Section):
    """What brokers are asked beyond offsets, and how often and how hard, beside the polls. Seconds."""

    producers: bool = False
    log_sizes: bool = False
    interval: Annotated[Seconds, _at_least("5s")] = 300.0
    lookups_per_second: Annotated[int, Field(ge=1, le=1_000_000)] = 1000


class GroupSettings(Section):
    """Which consumer groups are watched, how often and how hard they are asked for, beside the polls. Seconds.

    ``include`` and ``exclude`` are regular expressions that match whole names.
    """

    enabled: bool = True
    include: tuple[Annotated[str, AfterValidator(_regex)], ...] = (".*",)
    exclude: tuple[Annotated[str, AfterValidator(_regex)], ...] = ()
    interval: Annotated[Seconds, _at_least("5s")] = 60.0
    calls_in_flight: Annotated[int, Field(ge=1, le=64)] = 4
    missed_sweeps: Annotated[int, Field(ge=0, le=1000)] = 3
    time_lag: bool = True
    tolerance: Annotated[Seconds, _at_least("0s")] = 5.0
    """How uncertain a time lag may be: this, or 5 % of it where that is more."""
    lookups_per_second: Annotated[int, Field(ge=1, le=1_000_000)] = 2000
    """Look-ups of times asked of each broker at most."""


class ReplicaSettings(Section):
    r"""A pair of clusters of which one, ``target``, holds copies of topics of the other, and what these are called.

    ``include`` and ``exclude`` are regular expressions that match whole names of source topics. ``alias`` is what
    MirrorMaker calls the source cluster; ``pattern`` matches whole names of source topics, and ``replacement`` is
    what they become, with ``\1`` for a group. Durations in seconds.
    """

    source: str
    target: str
    policy: Literal["default", "identity", "regex"] = "default"
    alias: Annotated[str, AfterValidator(_not_empty)] | None = None
    separator: Annotated[str, AfterValidator(_not_empty)] = "."
    pattern: Annotated[str, AfterValidator(_regex)] | None = None
    replacement: str | None = None
    include: tuple[Annotated[str, AfterValidator(_regex)], ...] = (".*",)
    exclude: tuple[Annotated[str, AfterValidator(_regex)], ...] = ()
    interval: Annotated[Seconds, _at_least("1s")] = 30.0
    lookups_per_second: Annotated[int, Field(ge=1, le=1_000_000)] = 500
    behind_after: Annotated[Seconds, _at_least("0s")] = 60.0
    stopped_after: Annotated[Seconds, _at_least("1s")] = 300.0

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
        """The pattern that whole names of source topics match, and what they become (a template of ``re``)."""
        if self.pattern is not None and self.replacement is not None:
            return self.pattern, self.replacement
        prefix = "" if self.policy == "identity" else (self.alias or self.source) + self.separator
        return "(.*)", prefix.replace("\\", r"\\") + r"\1"


class ClusterSettings(Section):
    """One Kafka cluster; ``name`` is the value of the label ``kafka_cluster``."""

    name: Annotated[str, AfterValidator(_safe_name)]
    kafka: Annotated[KafkaProperties, BeforeValidator(_kafka)]
    topics: TopicFilter = TopicFilter()
    poll: PollSettings = PollSettings()
    """What this cluster has otherwise than ``Settings.poll``; ``Settings.poll_of`` brings both together."""
    groups: GroupSettings = GroupSettings()
    """What this cluster has otherwise than ``Settings.groups``; ``Settings.groups_of`` brings both together."""
    aws_msk_iam: AwsMskIam | None = None

    @model_validator(mode="after")
    def _one_way_in(self) -> Self:
        if self.aws_msk_iam is not None and (given := [name for name in self.kafka if name.startswith("sasl.")]):
            raise ValueError(f"must hold aws_msk_iam or {given[0]} under kafka, and only one")
        return self


class HistorySettings(Section):
    """Where history is written and how much of it is kept. Seconds and bytes."""

    enabled: bool = True
    folder: Annotated[Path, BeforeValidator(_folder)] = Path("topic-liveness-history")
    window: Annotated[Seconds, AfterValidator(_window)] = 300.0
    spool_retention: Annotated[Seconds, _at_least("1h")] = 14 * 86400.0
    max_bytes: Annotated[Bytes, _at_least("1MiB", parse_size)] = 10 * 2**30


class ExpectationSettings(Section):
    """How old published expectations may be before the exporter stops trusting them; seconds."""

    max_age: Annotated[Seconds, _at_least("1m")] = 8 * 86400.0


class BackfillSettings(Section):
    """How far back ``backfill`` looks, how finely, and how hard it asks each broker. Seconds."""

    horizon: Annotated[Seconds, _at_least("1h")] = 56 * 86400.0
    slot: Annotated[Seconds, AfterValidator(_slot)] = 3600.0
    lookups_per_second: Annotated[int, Field(ge=1, le=1_000_000)] = 2000
    calls_in_flight: Annotated[int, Field(ge=1, le=64)] = 2


class RollupSettings(Section):
    """What ``rollup`` hands to Spark."""

    master: Annotated[str, AfterValidator(_not_empty)] = "local[*]"
    false_alarms_per_1000_topic_weeks: Annotated[float, Field(ge=0.01, le=1000.0)] = 1.0


class MetricsSettings(Section):
    """Which series are shown; ``partition`` lists the per-partition metrics."""

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
    """Where HTTP is served."""

    listen: Annotated[str, AfterValidator(_listen)] = "0.0.0.0:9797"


class LogSettings(Section):
    """What is logged, and how."""

    level: Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(_lower)] = "info"
    format: Literal["text", "json"] = "text"


class Settings(Section):
    """Everything that can be configured, validated and frozen; made by ``load_settings``."""

    clusters: tuple[ClusterSettings, ...] = ()
    exporter: Annotated[str, AfterValidator(_safe_name)] = Field(default_factory=default_exporter)
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
        """Return how one cluster is polled: what is set for it, and ``poll`` for the rest."""
        own = {name: getattr(cluster.poll, name) for name in cluster.poll.model_fields_set}
        return self.poll.model_copy(update=own)

    def groups_of(self, cluster: ClusterSettings) -> GroupSettings:
        """Return how the groups of one cluster are swept: what is set for it, and ``groups`` for the rest."""
        own = {name: getattr(cluster.groups, name) for name in cluster.groups.model_fields_set}
        return self.groups.model_copy(update=own)
