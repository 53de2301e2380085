"""The series of one cluster and of its topics, from the columns of a poll."""

from collections.abc import Callable, Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Flags
from exporter.domain.judging.detection import Assessment
from exporter.domain.polls.inspections import NO_INSPECTIONS
from exporter.domain.polls.layout import Layout
from exporter.domain.polls.metadata import Metadata, TopicInfo
from exporter.domain.polls.table import Snapshot
from exporter.domain.verdicts import VERDICTS
from exporter.metrics.lines import AgeColumn, Column, Labels, RowSeries, Samples, column_of, escape, mask_nan
from exporter.metrics.partition_series import PartitionSeries

_STALENESS, _SILENCE = "kafka_topic_staleness_seconds", "kafka_topic_silence_seconds"
_INFO, _VERDICT = "kafka_topic_info", "kafka_topic_verdict"
_BY_VERDICT = "kafka_topic_partitions_by_verdict"
_BROKERS = "kafka_brokers"

_VERDICT_ORDER = sorted(range(len(VERDICTS)), key=VERDICTS.__getitem__)
_VARIANTS = {_BY_VERDICT: [f',verdict="{VERDICTS[code]}"' for code in _VERDICT_ORDER]}
_VERDICT_LABELS = np.array([f',verdict="{verdict}"' for verdict in VERDICTS], dtype=np.object_)


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
        self._partitions = PartitionSeries(cluster, partition_switches) if partitions else None
        self._labels = f'{{kafka_cluster="{escape(cluster)}"'
        self._settings = _SettingSeries(severity_of)
        self._records = _Records()
        self._topics = RowSeries(self._labels_of, {_VERDICT: str, _INFO: str}, _VARIANTS)
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
            **({} if self._partitions is None else self._partitions.update(snapshot, assessment)),
            **self._topics.update(topics, columns, growing),
            **self._cluster.update(self._labels, brokers),
        }

    def withdraw(self) -> None:
        """Remove every series: the values are too old."""
        self.shown = {}

    def _labels_of(self, topics: Sequence[str]) -> list[str]:
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
