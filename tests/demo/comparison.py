"""Compares the truth table with the verdicts: those of Spark, of /metrics and of the report."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from exporter.domain.polls.readings import State
from exporter.domain.verdicts import Verdict
from tests.demo.scenario import TOPICS, Topic, partitions
from tests.plain_http import get
from tests.tables import as_text

CLUSTER = "demo"

Key = tuple[str, int | None]
"""(topic, partition); partition None is the topic as a whole."""

_GONE = frozenset({Verdict.DEAD, Verdict.RETIRED})
_UNSHOWN = frozenset({Verdict.LIVE, Verdict.QUIET, Verdict.LEARNING})


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
            return cls.of(get(f"http://{address}/metrics", timeout=5.0, trust_env=False).text)
        except httpx.TransportError:
            return cls()

    @classmethod
    def of(cls, exposition: str) -> ExposedVerdicts:
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

    cells: tuple[str, ...]
    problems: tuple[str, ...]

    @property
    def fits(self) -> bool:
        return not self.problems


def as_lines(rows: Sequence[Row]) -> str:
    """Return the truth table beside the verdicts of the product, what is wrong, and PASS or FAIL."""
    head = ("topic", "truth", "history", "/metrics", "report", "", "its story")
    lines = [as_text([head, *(row.cells for row in rows)]), ""]
    lines += [f"  {row.cells[0]}: {problem}" for row in rows for problem in row.problems]
    if wrong := sum(not row.fits for row in rows):
        return "\n".join([*lines, f"FAIL: {wrong} of {len(rows)} lines are wrong"])
    judged = f"{len(TOPICS)} topics and {sum(1 for _ in partitions())} partitions"
    return "\n".join([*lines, f"PASS: the verdicts of {judged} are right"])


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

    def rows(topic: Topic) -> Iterable[Row]:
        yield _row(topic, None, published, shown, dead_in_report)
        for partition in range(topic.partitions):
            row = _row(topic, partition, published, shown, dead_in_report)
            if partition in topic.odd_ones or row.problems:
                yield row

    return [row for topic in TOPICS for row in rows(topic)]


def _row(
    topic: Topic, partition: int | None, published: Mapping[Key, Verdict], shown: ExposedVerdicts, dead: set[Key]
) -> Row:
    key = (topic.name, partition)
    truth = topic.truth if partition is None else topic.partition_truth(partition)
    right = ", ".join(verdict for verdict in Verdict if verdict in truth)
    problems = []
    by_spark = published.get(key)
    if by_spark not in truth:
        problems.append(f"published as {by_spark or 'nothing'}, not as one of: {right}")
    by_exporter = (shown.verdicts or {}).get(key)
    harmless = partition is not None and by_exporter is None
    if not (bool(truth & _UNSHOWN) if harmless else by_exporter in truth):
        problems.append(f"/metrics shows {by_exporter or 'nothing'}, not as one of: {right}")
    # The report lists a partition that died with its topic under the topic.
    named = key in dead or (partition not in topic.odd_ones and (topic.name, None) in dead)
    if named != (truth <= _GONE):
        problems.append(f"the report {'names' if named else 'does not name'} it as dead")
    if partition is not None and topic.state is not None:
        state = (shown.states or {}).get(key, State.OBSERVED)
        if state is not topic.state:
            problems.append(f"/metrics shows the state {state}, which is not {topic.state}")
    name, story = (topic.name, topic.description) if partition is None else (f"{topic.name}/{partition}", "")
    exposed = str(by_exporter or ("not alarming" if harmless else "nothing"))
    outputs = (str(by_spark or "nothing"), exposed, "dead" if named else "-")
    return Row((name, right, *outputs, "WRONG" if problems else "ok", story), tuple(problems))
