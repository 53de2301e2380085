"""Checks whether mirrored topics can be compared with their source."""

from __future__ import annotations

from collections.abc import Mapping

from exporter.doctor.findings import Finding, Severity
from exporter.domain import TopicInfo
from exporter.domain.formatting import plural
from exporter.domain.replicas.matching import faults
from exporter.factory.clusters import make_naming
from exporter.settings import Settings


def replicas(settings: Settings, seen: Mapping[str, Mapping[str, TopicInfo]]) -> list[Finding]:
    """Check each pair of clusters by its topics. A finding belongs to the target cluster of the pair."""
    namings = [make_naming(pair, settings) for pair in settings.replicas]
    found = []
    for pair, naming in zip(settings.replicas, namings, strict=True):
        unseen = [name for name in (pair.source, pair.target) if name not in seen]
        if unseen:
            what = f"topics of {pair.source} were not matched with replicas: {' and '.join(unseen)} could not be read"
            step = "run `doctor` for both clusters when both can be read"
            costs = "whether the mapping is right is unknown"
            found.append(Finding("replicas", Severity.NOTE, what, costs, step, pair.target))
            continue
        mine, theirs = seen[pair.source], seen[pair.target]
        taken = {
            name
            for other, naming_of_other in zip(settings.replicas, namings, strict=True)
            if other is not pair and other.target == pair.target
            for topic in seen.get(other.source, {})
            if (name := naming_of_other.replica_of(topic)) is not None
        }
        matching = naming.match(mine, theirs, taken)
        for fault in faults(pair.source, pair.target, matching, mine, theirs):
            severity = Severity.WARNING if fault.matters else Severity.NOTE
            costs = "their lag behind the source is unknown"
            what = fault.what.removeprefix("replicas: ")
            found.append(Finding("replicas", severity, what, costs, fault.fix, pair.target))
        if matching.replicas:
            what = f"{plural(len(matching.replicas), 'topic')} of {pair.source} with a replica"
            if matching.without_replica:
                what += f", {len(matching.without_replica):,} without, such as {matching.without_replica[0]}"
            found.append(Finding("replicas", Severity.OK, what, cluster=pair.target))
    return found
