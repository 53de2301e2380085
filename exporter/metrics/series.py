"""The series of one cluster, of its topics and of its partitions, from the columns of a poll."""

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Flags, Floats
from exporter.domain.judging.detection import Assessment
from exporter.domain.polls.inspections import NO_INSPECTIONS
from exporter.domain.polls.layout import NO_LEADER, Layout
from exporter.domain.polls.metadata import Membership, Metadata, TopicInfo
from exporter.domain.polls.readings import ANSWERED, State
from exporter.domain.polls.table import STATE_CODES, STATES, Snapshot, Table
from exporter.domain.verdicts import VERDICT_CODES, VERDICTS, Verdict
from exporter.metrics.catalogue import PARTITION_METRICS
from exporter.metrics.lines import AgeColumn, Column, Labels, RowSeries, Samples, column_of, escape, mask_nan

_STALENESS, _SILENCE = "kafka_topic_staleness_seconds", "kafka_topic_silence_seconds"
_INFO, _VERDICT = "kafka_topic_info", "kafka_topic_verdict"
_BY_VERDICT = "kafka_topic_partitions_by_verdict"
_BROKERS = "kafka_brokers"

_VERDICT_ORDER = sorted(range(len(VERDICTS)), key=VERDICTS.__getitem__)
_VARIANTS = {_BY_VERDICT: [f',verdict="{VERDICTS[code]}"' for code in _VERDICT_ORDER]}
_VERDICT_LABELS = np.array([f',verdict="{verdict}"' for verdict in VERDICTS], dtype=np.object_)

_PARTITION_STALENESS = "kafka_topic_partition_staleness_seconds"
_PARTITION_TAILS = {
    "kafka_topic_partition_state": [f',state="{state}"}} 1\n' for state in STATES].__getitem__,
    "kafka_topic_partition_verdict": [f',verdict="{verdict}"}} 1\n' for verdict in VERDICTS].__getitem__,
}
_UNREMARKABLE = [VERDICT_CODES[verdict] for verdict in (Verdict.LIVE, Verdict.QUIET, Verdict.LEARNING)]


class ClusterSeries:
    """The series of the partitions and topics of one cluster.

    One thread updates, any thread renders what is ``shown``: it is replaced as a whole.
    """

    def __init__(
        self,
        cluster: str,
        *,
        partition_switches: Collection[str],
        partitions: bool = True,
        severity_of: Callable[[str], str | None] = lambda _: None,
    ) -> None:
        """With ``partitions`` False only series of topics are exposed.

        ``severity_of`` is what the configuration sets for a topic.
        """
        by_partition = PARTITION_METRICS if partitions else ()
        self._of_partitions = {
            one.name for one in by_partition if one.switch is None or one.switch in partition_switches
        }
        """The metrics with a series for each partition."""
        self._labels = f'{{kafka_cluster="{escape(cluster)}"'
        self._settings = _SettingSeries(severity_of)
        self._records = _Records()
        self._partitions = RowSeries(self._label_partitions, _PARTITION_TAILS)
        self._topics = RowSeries(self._label_topics, {_VERDICT: str, _INFO: str}, _VARIANTS)
        self._cluster = RowSeries[str](lambda start: [start])
        self.shown: Samples = {}

    def update(self, snapshot: Snapshot, assessment: Assessment, without_readers: Collection[str] = ()) -> None:
        """Take a good poll; the series of deleted topics and partitions end.

        ``without_readers`` are the topics that no consumer group reads or has read.
        """
        topics = snapshot.table.layout.topics
        self._settings.update(snapshot.metadata, topics)
        visible = self._settings.visible
        columns = {
            name: (values, known & np.repeat(visible, len(values) // max(1, len(topics))))
            for name, (values, known) in self._columns(snapshot, assessment, without_readers).items()
        }
        since = {_STALENESS: assessment.newest, _SILENCE: assessment.of_topics.last_advance}
        growing = {name: AgeColumn(np.where(visible, moments, np.nan)) for name, moments in since.items()}
        brokers = {_BROKERS: (np.array([len(snapshot.metadata.brokers)]), np.ones(1, dtype=np.bool_))}
        self.shown = {
            **(self._update_partitions(snapshot, assessment) if self._of_partitions else {}),
            **self._topics.update(topics, columns, growing),
            **self._cluster.update(self._labels, brokers),
        }

    def withdraw(self) -> None:
        """Remove every series: the values are too old."""
        self.shown = {}

    def _update_partitions(self, snapshot: Snapshot, assessment: Assessment) -> Samples:
        columns = _partition_columns(snapshot, assessment, self._of_partitions)
        grows = _PARTITION_STALENESS in self._of_partitions
        growing = {_PARTITION_STALENESS: AgeColumn(_stale_since(snapshot.table))} if grows else {}
        return self._partitions.update(snapshot.table.layout, columns, growing)

    def _label_partitions(self, layout: Layout) -> list[str]:
        starts = [f'{labels},partition="' for labels in self._label_topics(layout.topics)]
        numbers = zip(layout.topic.tolist(), layout.partition.tolist(), strict=True)
        return [f'{starts[topic]}{partition}"' for topic, partition in numbers]

    def _label_topics(self, topics: Sequence[str]) -> list[str]:
        return [f'{self._labels},topic="{escape(topic)}"' for topic in topics]

    def _columns(
        self, snapshot: Snapshot, assessment: Assessment, without_readers: Collection[str]
    ) -> dict[str, Column]:
        judged = assessment.of_topics
        everywhere = np.ones(len(judged), dtype=np.bool_)
        verdicts = assessment.verdicts[:, _VERDICT_ORDER].ravel()
        return {
            "kafka_topic_partitions": (np.diff(snapshot.table.layout.first), everywhere),
            "kafka_topic_last_advance_timestamp_seconds": mask_nan(judged.last_advance),
            _BY_VERDICT: (verdicts, verdicts > 0),
            _VERDICT: (_VERDICT_LABELS[judged.verdict] + self._settings.label_alerts(without_readers), everywhere),
            "kafka_topic_expected_by_timestamp_seconds": mask_nan(judged.expected_by),
            "kafka_topic_silence_score": mask_nan(judged.score),
            "kafka_topic_records_total": (self._records.add(snapshot), everywhere),
            **self._settings.columns,
            "kafka_topic_disk_size_bytes": _disk_sizes(snapshot),
        }


class _Records:
    """The records of topics since the exporter started, or since a topic was created again."""

    def __init__(self) -> None:
        self._layout = Layout.build({})
        self._ids = self._totals = np.zeros(0, dtype=np.int64)

    def add(self, snapshot: Snapshot) -> NDArray[np.int64]:
        """Add the records of a poll and return the totals."""
        layout, ids = snapshot.table.layout, snapshot.metadata.topic_numbers
        if layout != self._layout:
            places = [self._layout.number_of(name) for name in layout.topics]
            self._ids = np.array([0 if at is None else self._ids[at] for at in places], dtype=np.int64)
            self._totals = np.array([0 if at is None else self._totals[at] for at in places], dtype=np.int64)
            self._layout = layout
        gained = np.diff(np.concatenate([[0], np.cumsum(snapshot.table.advanced_by)])[layout.first])
        made_again = (self._ids != 0) & (ids != 0) & (self._ids != ids)
        self._totals = np.where(made_again, 0, self._totals + gained)
        self._ids = np.where(ids != 0, ids, self._ids)
        return self._totals


class _SettingSeries:
    """Settings of topics from the metadata; built again only when it changes."""

    def __init__(self, severity_of: Callable[[str], str | None]) -> None:
        self._metadata: Metadata | None = None
        self._severity_of = severity_of
        self._topics: Sequence[str] = ()
        self._owners = self._severities = column_of([])
        self.visible: Flags = np.zeros(0, dtype=np.bool_)
        """False for topics of which neither partitions nor a description are known."""
        self.columns: dict[str, Column] = {}

    def update(self, metadata: Metadata, topics: Sequence[str]) -> None:
        """Take the metadata of a poll; ``topics`` are its topics in the order of rows."""
        if metadata is self._metadata:
            return
        self._metadata, self._topics = metadata, topics
        infos = [metadata.topics[name] for name in topics]
        retention = [info.config and info.config.retention_seconds for info in infos]
        self.visible = np.array([name not in metadata.invisible for name in topics], dtype=np.bool_)
        described = [info.config is not None or info.owner is not None for info in infos]
        self.columns = {
            _INFO: (column_of(list(map(_described, infos))), np.array(described, dtype=np.bool_)),
            "kafka_topic_retention_seconds": mask_nan(np.array(retention, dtype=np.float64)),
        }
        self._owners = column_of([f',owner="{escape(info.owner or "")}"' for info in infos])
        self._severities = column_of([self._severity_of(name) or "" for name in topics])

    def label_alerts(self, without_readers: Collection[str]) -> Labels:
        """Return owner and severity of each topic, as the end of a series that is 1, for alerts on it."""
        read = np.array([name not in without_readers for name in self._topics], dtype=np.bool_)
        severities = np.where(self._severities != "", self._severities, np.where(read, "critical", "warning"))
        labels: Labels = self._owners + ',severity="' + severities + '"} 1\n'
        return labels


def _described(info: TopicInfo) -> str:
    """Return the further labels of ``kafka_topic_info`` and its value; empty where unknown."""
    config = info.config
    labels = {
        "timestamp_type": (config and config.timestamp_type) or "",
        "cleanup_policy": (config and config.cleanup_policy) or "",
        "remote_storage": "" if config is None else str(config.remote_storage).lower(),
        "owner": info.owner or "",
    }
    return "".join(f',{name}="{escape(value)}"' for name, value in labels.items()) + "} 1\n"


def _disk_sizes(snapshot: Snapshot) -> Column:
    if snapshot.inspected is NO_INSPECTIONS:
        count = len(snapshot.table.layout.topics)
        return np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.bool_)
    return snapshot.inspected.disk_bytes_of_topics


def _partition_columns(snapshot: Snapshot, assessment: Assessment, names: Collection[str]) -> dict[str, Column]:
    """Return the columns of metrics; replicas of topics that could not be described are unknown."""
    table, members, judged = snapshot.table, snapshot.metadata.membership, assessment.of_partitions
    leader, state = table.leader_now, table.state_now
    described = (snapshot.metadata.reason_of_topics == ANSWERED)[table.layout.topic]
    replicas, in_sync = np.diff(members.first_replica), members.in_sync
    found: Mapping[str, Callable[[], Column]] = {
        "current_offset": lambda: (table.latest, table.read),
        "oldest_offset": lambda: (table.earliest, table.read),
        "last_record_timestamp_seconds": lambda: mask_nan(np.where(table.read, table.newest, np.nan)),
        "last_advance_timestamp_seconds": lambda: mask_nan(judged.last_advance),
        "expected_by_timestamp_seconds": lambda: mask_nan(judged.expected_by),
        "leader": lambda: (leader, leader != NO_LEADER),
        "replicas": lambda: (replicas, described),
        "in_sync_replica": lambda: (in_sync, described),
        "leader_is_preferred": lambda: (_led_by_preferred(members), described & (replicas > 0)),
        "under_replicated_partition": lambda: ((in_sync < replicas).astype(np.int8), described),
        "earliest_local_offset": lambda: _in_tiers(table.earliest_local, table.read),
        "latest_tiered_offset": lambda: _in_tiers(table.latest_tiered, table.read),
        "state": lambda: (state, state != STATE_CODES[State.OBSERVED]),
        "verdict": lambda: (judged.verdict, ~np.isin(judged.verdict, _UNREMARKABLE)),
    }
    named = {f"kafka_topic_partition_{name}": column for name, column in found.items()}
    return {name: column() for name, column in named.items() if name in names}


def _led_by_preferred(members: Membership) -> NDArray[np.int8]:
    """Return 1 for each partition that its first replica leads."""
    assigned = np.diff(members.first_replica) > 0
    preferred = np.full(len(assigned), NO_LEADER, dtype=np.int32)
    preferred[assigned] = members.replicas[members.first_replica[:-1][assigned]]
    return np.asarray((members.leader == preferred) & (members.leader != NO_LEADER), np.int8)


def _stale_since(table: Table) -> Floats:
    contradictory = table.state == STATE_CODES[State.CONTRADICTORY]
    return np.where(contradictory | ~table.read, np.nan, table.newest)


def _in_tiers(offsets: Floats, read: Flags) -> Column:
    known = read & ~np.isnan(offsets)
    return np.where(known, offsets, 0).astype(np.int64), known
