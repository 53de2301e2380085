"""The settings and their defaults. The rules of single settings are in ``rules``."""

import re
from pathlib import Path
from typing import Annotated, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    field_serializer,
    model_validator,
)

from exporter.domain.history.retention import KEPT_DAYS
from exporter.domain.overrides import Overrides, Owners
from exporter.settings.delivery import DeliverySettings, LinkSettings, ReportSettings
from exporter.settings.properties import KafkaProperties
from exporter.settings.quantities import parse_size
from exporter.settings.rules import (
    Bytes,
    Name,
    NotEmpty,
    Regex,
    Seconds,
    Section,
    check_listen,
    default_exporter,
    divide_hour,
    lower_text,
    parse_file,
    parse_folder,
    parse_kafka,
    require_match,
    require_range,
)
from exporter.settings.topics import CalendarSettings, OutageSettings, OverrideSettings, OwnerSettings
from exporter.storage.files import Location

ERROR_TOPICS = r"(.*[._-])?(?i:dlq|dlt|dead[._-]?letters?|retry|retries|errors?|poison)([._-].*)?|.*(DLQ|DLT)"

S = TypeVar("S", bound=Section)

Interval = Annotated[Seconds, require_range("5s", "1d")]

PartitionMetric = Literal[
    "current_offset",
    "oldest_offset",
    "last_record_timestamp",
    "staleness",
    "last_advance_timestamp",
    "expected_by",
    "leader",
    "replicas",
    "in_sync_replica",
    "leader_is_preferred",
    "under_replicated_partition",
    "earliest_local_offset",
    "latest_tiered_offset",
]
"""The per-partition metrics that can be switched; the first six are on by default."""


_Role = Annotated[
    str,
    require_match(
        r"(?a)arn:aws[\w-]*:iam::\d{12}:role/[\w+=,.@/-]+",
        "must be the ARN of a role, such as arn:aws:iam::123456789012:role/liveness",
    ),
]


class AwsMskIam(Section):
    """Amazon MSK with IAM: the region of the tokens and the role to assume. Without a role, the default credentials."""

    region: Annotated[str, require_match(r"[a-z]{2,}(-[a-z]+)+-[0-9]+", "must be an AWS region, such as eu-central-1")]
    """The region that tokens are signed for."""
    role_arn: _Role | None = None
    """The role to assume; without it the default credentials of AWS."""


class NameFilter(Section):
    """Which names are meant."""

    include: tuple[Regex, ...] = (".*",)
    """Regular expressions that match whole names."""
    exclude: tuple[Regex, ...] = ()
    """Regular expressions that match whole names; they win over `include`."""


class TopicFilter(NameFilter):
    """Which topics are watched."""

    internal: bool = False
    """Also `__consumer_offsets` and the like."""


class PollSettings(Section):
    """How often clusters are polled. Durations in seconds."""

    interval: Interval = 30.0
    """5s to 1d. The requests of a poll share this time, and each kind gets a second at least: with a slow network
    a poll takes longer, and polls are fewer. Where history is written it must not exceed `history.window`."""
    request_timeout: Annotated[Seconds, require_range("1s", "1h")] = 10.0
    """1s to 1h. Without an answer in time a partition is unreadable in this poll."""
    missed_polls: Annotated[int, Field(ge=1, le=1000)] = 3
    """1 to 1000. One interval after so many, the series of a cluster are withdrawn."""


class TieredSettings(Section):
    """How often partitions with remote storage are looked up, besides the polls. Seconds."""

    interval: Interval = 300.0
    """5s to 1d. How often they are looked up."""


class InspectionSettings(Section):
    """What brokers are asked besides offsets, and how often. Seconds."""

    log_sizes: bool = False
    """Bytes on the brokers' disks; needs Describe on the cluster."""
    interval: Interval = 300.0
    """5s to 1d. How often brokers are asked."""


class GroupSettings(NameFilter):
    """Which consumer groups are watched, and how often."""

    enabled: bool = True
    """Whether groups are read."""
    interval: Interval = 60.0
    """5s to 1d. Also the time limit of one sweep; with time lags it may take half as long again."""
    time_lag: bool = True
    """Lag in seconds as well."""
    tolerance: Annotated[Seconds, require_range("0s")] = 5.0
    """0s to 36500d. The largest uncertainty of a time lag: this, or 5 % of the lag where that is more."""


class ReplicaSettings(NameFilter):
    """A pair of clusters: ``target`` holds replicas of topics of ``source``. Also which, and how they are named."""

    source: str
    """The cluster that is copied."""
    target: str
    """The cluster with the replicas."""
    policy: Literal["default", "identity", "regex"] = "default"
    """How replicas are named: `default` with the alias before the name, `identity` unchanged, `regex` by `pattern`."""
    alias: NotEmpty | None = None
    """MirrorMaker's name of the source cluster; without it `source`."""
    separator: NotEmpty = "."
    """Between alias and name."""
    pattern: Regex | None = None
    """Matches whole names of source topics, with `policy: regex`."""
    replacement: str | None = None
    r"""The name of the replica, with `\1` for a group of `pattern`."""
    behind_after: Annotated[Seconds, require_range("0s")] = 60.0
    """0s to 36500d. A replica is behind when its newest record is older than that of its source by more than this."""
    stopped_after: Annotated[Seconds, require_range("1s")] = 300.0
    """1s to 36500d. How long a replica may be silent with something to copy."""
    trailing_markers: Annotated[int, Field(ge=0, le=1_000)] = 1
    """0 to 1000. Offsets at the end of a source partition that may be transaction markers."""

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

    name: Name
    """The label `kafka_cluster`."""
    kafka: Annotated[KafkaProperties, BeforeValidator(parse_kafka), PlainSerializer(KafkaProperties.show)]
    """Any librdkafka property, passed through."""
    topics: TopicFilter = TopicFilter()
    """Which topics are watched."""
    poll: PollSettings = PollSettings()
    """Settings of this cluster that differ from `poll`."""
    groups: GroupSettings = GroupSettings()
    """Settings of this cluster that differ from `groups`."""
    aws_msk_iam: AwsMskIam | None = None
    """Amazon MSK with IAM; needs the extra `msk`."""

    @field_serializer("poll", "groups")
    def _own(self, section: BaseModel) -> dict[str, object] | None:
        """Leave out what comes from the section of all clusters."""
        return section.model_dump(mode="json", exclude_unset=True) or None

    @model_validator(mode="after")
    def _one_way_in(self) -> Self:
        if self.aws_msk_iam is not None and (given := [name for name in self.kafka if name.startswith("sasl.")]):
            raise ValueError(f"must hold aws_msk_iam or {given[0]} under kafka, and only one")
        return self


class HistorySettings(Section):
    """Where history is written, and how much of it is kept. Seconds and bytes."""

    enabled: bool = True
    """Whether history is written."""
    folder: Annotated[Location, PlainValidator(parse_folder), PlainSerializer(str)] = Path("topic-liveness-history")
    """A folder of this host, or in object storage: `s3://BUCKET/FOLDER`."""
    window: Annotated[Seconds, divide_hour("1s")] = 300.0
    """1s to 1h. The length of a history interval. Must divide an hour evenly."""
    max_bytes: Annotated[Bytes, require_range("1MiB", parse=parse_size)] = 10 * 2**30
    """1MiB to 1048576TiB. Past that the oldest files are deleted and counted."""


class ExpectationSettings(Section):
    """The maximum age of published expectations, in seconds; the exporter ignores older ones."""

    max_age: Annotated[Seconds, require_range("1m")] = 8 * 86400.0
    """1m to 36500d. Older ones are not used: no topic is judged, except by an override or its age."""


class BackfillSettings(Section):
    """How far back ``backfill`` goes, and the length of its slots. Seconds."""

    horizon: Annotated[Seconds, require_range("1h", "3650d")] = 56 * 86400.0
    """1h to 3650d. How much history it writes, before the newest record of each partition."""
    slot: Annotated[Seconds, divide_hour("1m")] = 3600.0
    """1m to 1h. Must divide an hour evenly. Shorter slots need more look-ups."""


class AuditSettings(Section):
    """What ``audit`` knows topics by."""

    error_topics: Regex = ERROR_TOPICS
    """Matches whole names of dead-letter, retry and error topics, which are usually silent."""


class RollupSettings(Section):
    """What ``rollup`` passes to Spark."""

    master: NotEmpty = "local[*]"
    """Where Spark runs."""
    false_alarms_per_1000_topic_weeks: Annotated[float | None, Field(ge=0.01, le=1000.0)] = 2.0
    """0.01 to 1000. The false alarms that you accept: thresholds are fitted to them."""
    false_alarms_a_week: Annotated[float | None, Field(ge=0.01, le=1000.0)] = None
    """0.01 to 1000. The same in the whole fleet, whatever its size; in place of `false_alarms_per_1000_topic_weeks`."""
    retention: Annotated[Seconds, require_range("52w")] = KEPT_DAYS * 86400.0
    """52w to 36500d. For how long days, verdicts and other results are kept: [Tables](history.md)."""

    @model_validator(mode="after")
    def _either(self) -> Self:
        if self.false_alarms_a_week is None:
            return self
        if "false_alarms_per_1000_topic_weeks" in self.model_fields_set:
            raise ValueError("must hold false_alarms_per_1000_topic_weeks or false_alarms_a_week, and only one")
        return self.model_copy(update={"false_alarms_per_1000_topic_weeks": None})


class MetricsSettings(Section):
    """Which series are exposed; ``partition`` lists the per-partition metrics."""

    granularity: Literal["partition", "topic"] = "partition"
    """`topic` has no series of partitions."""
    partition: tuple[PartitionMetric, ...] = (
        "current_offset",
        "oldest_offset",
        "last_record_timestamp",
        "staleness",
        "last_advance_timestamp",
        "expected_by",
    )
    """The series of each partition; see [Sizing](operate.md#sizing)."""


class WebSettings(Section):
    """The address of the HTTP server, and its web configuration file in the format of Prometheus exporters."""

    listen: Annotated[str, AfterValidator(check_listen)] = ":9797"
    """The address of the server; `:9797` is every address of the host, those of IPv6 too."""
    config_file: Annotated[Path, BeforeValidator(parse_file)] | None = None
    """TLS, client certificates and users: [Security](security.md)."""


class LogSettings(Section):
    """Level and format of the log."""

    level: Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(lower_text)] = "info"
    """`debug`, `info`, `warning` or `error`."""
    format: Literal["text", "json"] = "text"
    """`text` or `json`."""


class Settings(Section):
    """All settings, validated and frozen; created by ``load_settings``."""

    clusters: tuple[ClusterSettings, ...] = ()
    """The Kafka clusters."""
    exporter: Name = Field(default_factory=default_exporter)
    """The name in the history; unique for each exporter. Default: the name of the host."""
    lookups_per_second: Annotated[int, Field(ge=1, le=1_000_000)] = 2000
    """1 to 1000000. Look-ups beside the polls at each broker at most: of a backfill, an audit, time lags. A twentieth
    of it for remote storage."""
    poll: PollSettings = PollSettings()
    """Polls of all clusters."""
    tiered: TieredSettings = TieredSettings()
    """Topics with remote storage: [Remote storage](mirrors-and-tiers.md)."""
    inspection: InspectionSettings = InspectionSettings()
    """Sizes of topics: [Sizes of topics](operate.md#sizes-of-topics)."""
    groups: GroupSettings = GroupSettings()
    """Consumer groups, read independently of polls: [Consumer lag](consumer-lag.md)."""
    replicas: tuple[ReplicaSettings, ...] = ()
    """Mirrored clusters: [Mirrors](mirrors-and-tiers.md)."""
    history: HistorySettings = HistorySettings()
    """The history: [History](history.md)."""
    expectations: ExpectationSettings = ExpectationSettings()
    """What the rollup published."""
    backfill: BackfillSettings = BackfillSettings()
    """History from before the exporter ran."""
    audit: AuditSettings = AuditSettings()
    """The first look at a cluster: [Audit](get-started.md)."""
    rollup: RollupSettings = RollupSettings()
    """The daily job."""
    metrics: MetricsSettings = MetricsSettings()
    """Which series are exposed."""
    overrides: tuple[OverrideSettings, ...] = ()
    """What you know about topics: [Overrides](configuration.md#overrides)."""
    outages: tuple[OutageSettings, ...] = ()
    """Known outages: [Outages](configuration.md#outages)."""
    calendars: tuple[CalendarSettings, ...] = ()
    """Public holidays: [Holidays](configuration.md#holidays)."""
    owners: tuple[OwnerSettings, ...] = ()
    """Owners of topics: [Owners](configuration.md#owners)."""
    report: ReportSettings = ReportSettings()
    """The weekly report."""
    links: LinkSettings = LinkSettings()
    """Addresses that the report and the pages lead to."""
    delivery: DeliverySettings = DeliverySettings()
    """Who is sent the report: [Delivery](report.md#delivery)."""
    web: WebSettings = WebSettings()
    """The pages, the API and `/metrics`."""
    log: LogSettings = LogSettings()
    """The log."""

    def make_overrides(self) -> Overrides:
        """Return what is known of topics in place of history."""
        return Overrides([override.make_override() for override in self.overrides])

    def make_owners(self) -> Owners:
        """Return the owners of topics."""
        return Owners([owner.make_owner() for owner in self.owners])

    def poll_of(self, cluster: ClusterSettings) -> PollSettings:
        """Return the poll settings of a cluster: its own, and ``poll`` for the rest."""
        return _with_own(self.poll, cluster.poll)

    def groups_of(self, cluster: ClusterSettings) -> GroupSettings:
        """Return the group settings of a cluster: its own, and ``groups`` for the rest."""
        return _with_own(self.groups, cluster.groups)


def _with_own(general: S, own: S) -> S:
    return general.model_copy(update={name: getattr(own, name) for name in own.model_fields_set})
