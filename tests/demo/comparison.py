"""Compares the truth table with the verdicts: those of Spark, of /metrics and of the report."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from exporter.domain.polls.readings import State
from exporter.domain.verdicts import Verdict
from tests.demo.scenario import TOPICS, Topic

CLUSTER = "demo"

_DIRECTLY = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""A proxy that the environment names would ask its own loopback."""

Key = tuple[str, int | None]
"""(topic, partition); partition None is the topic as a whole."""


@dataclass(frozen=True, slots=True)
class ExposedVerdicts:
    """What /metrics shows. Live, quiet and learning partitions have no verdict of their own there."""

    up: bool = False
    expectations_as_of: float | None = None
    verdicts: Mapping[Key, Verdict] | None = None
    states: Mapping[Key, State] | None = None

    @classmethod
    def at(cls, address: str) -> ExposedVerdicts:
        """Return what an exporter on this host shows, nothing while it does not answer."""
        try:
            with _DIRECTLY.open(f"http://{address}/metrics", timeout=5.0) as answer:
                return cls.of(answer.read().decode())
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return cls()

    @classmethod
    def of(cls, exposition: str) -> ExposedVerdicts:
        """Parse an exposition."""
        verdicts: dict[Key, Verdict] = {}
        states: dict[Key, State] = {}
        up, as_of = False, None
        samples = (one for family in text_string_to_metric_families(exposition) for one in family.samples)
        for sample in samples:
            labels = sample.labels
            match sample.name:
                case "topic_liveness_cluster_up":
                    up = sample.value == 1
                case "topic_liveness_expectations_timestamp_seconds":
                    as_of = sample.value
                case "kafka_topic_verdict" if sample.value == 1:
                    verdicts[labels["topic"], None] = Verdict(labels["verdict"])
                case "kafka_topic_partition_verdict" if sample.value == 1:
                    verdicts[labels["topic"], int(labels["partition"])] = Verdict(labels["verdict"])
                case "kafka_topic_partition_state" if sample.value == 1:
                    states[labels["topic"], int(labels["partition"])] = State(labels["state"])
                case _:
                    pass
        return cls(up, as_of, verdicts, states)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the comparison: a topic, or a partition that differs from its topic."""

    name: str
    description: str
    truth: frozenset[Verdict]
    published: Verdict | None
    shown: str
    reported: str
    problems: tuple[str, ...]

    @property
    def fits(self) -> bool:
        """Whether all outputs agree with the truth."""
        return not self.problems


def reported_dead(report: Path) -> set[Key]:
    """Return the topics, and the partitions of other topics, that the report's JSON names dead."""
    document: Any = json.loads(report.read_text(encoding="utf-8"))
    return {
        (entry["topic"], finding["partition"])
        for section in document["sections"]
        for entry in section["entries"]
        for finding in entry["findings"]
        if finding["verdict"] in _GONE
    }


def compare(published: Mapping[Key, Verdict], shown: ExposedVerdicts, dead_in_report: set[Key]) -> list[Row]:
    """Return a row for each topic, and for each partition that differs from its topic or has a wrong verdict."""
    return [row for topic in TOPICS for row in _rows(topic, published, shown, dead_in_report)]


def _rows(topic: Topic, published: Mapping[Key, Verdict], shown: ExposedVerdicts, dead: set[Key]) -> Iterable[Row]:
    whole = _row(topic, None, topic.truth, published, shown, dead)
    yield whole
    for partition in range(topic.partitions):
        row = _row(topic, partition, topic.partition_truth(partition), published, shown, dead)
        if partition in topic.odd_ones or row.problems:
            yield row


def _row(
    topic: Topic,
    partition: int | None,
    truth: frozenset[Verdict],
    published: Mapping[Key, Verdict],
    shown: ExposedVerdicts,
    dead: set[Key],
) -> Row:
    key = (topic.name, partition)
    problems = []
    by_spark = published.get(key)
    if by_spark not in truth:
        problems.append(f"published as {by_spark or 'nothing'}, not as one of: {joined_names(truth)}")
    by_exporter = (shown.verdicts or {}).get(key)
    harmless = partition is not None and by_exporter is None
    if not (bool(truth & _UNSHOWN) if harmless else by_exporter in truth):
        problems.append(f"/metrics shows {by_exporter or 'nothing'}, not as one of: {joined_names(truth)}")
    # The report lists a partition that died with its topic under the topic.
    named = key in dead or (partition not in topic.odd_ones and (topic.name, None) in dead)
    if named != (truth <= _GONE):
        problems.append(f"the report {'names' if named else 'does not name'} it as dead")
    if partition is not None and topic.state is not None:
        state = (shown.states or {}).get(key, State.OBSERVED)
        if state is not topic.state:
            problems.append(f"/metrics shows the state {state}, which is not {topic.state}")
    return Row(
        topic.name if partition is None else f"{topic.name}/{partition}",
        topic.description if partition is None else "",
        truth,
        by_spark,
        str(by_exporter) if by_exporter else ("not alarming" if harmless else "nothing"),
        "dead" if named else "-",
        tuple(problems),
    )


_GONE = frozenset({Verdict.DEAD, Verdict.RETIRED})
_UNSHOWN = frozenset({Verdict.LIVE, Verdict.QUIET, Verdict.LEARNING})


def joined_names(verdicts: frozenset[Verdict]) -> str:
    """Return the verdicts as text, in the order of the enum."""
    return ", ".join(verdict for verdict in Verdict if verdict in verdicts)
