"""What inspections need: the second client, and rights that nothing else wants."""

from __future__ import annotations

from collections import Counter

from exporter.collectors.producers_log_sizes import Inspection
from exporter.doctor.findings import Finding, Severity, told
from exporter.domain import Reason, Snapshot
from exporter.domain.formatting import plural, some
from exporter.domain.ports import Clock
from exporter.factory import make_inspector
from exporter.kafka import LOG_DIRS, PRODUCERS
from exporter.settings import ClusterSettings, Settings

_ACLS = "kafka-acls.sh --bootstrap-server ... --add --allow-principal User:PRINCIPAL"
_MENDS = {
    (PRODUCERS, Reason.UNAUTHORIZED): f"{_ACLS} --operation Read --topic '*', or inspection.producers: false",
    (PRODUCERS, Reason.UNSUPPORTED_VERSION): "none but newer brokers: they tell from 2.8 on (KIP-664)",
    (LOG_DIRS, Reason.UNAUTHORIZED): f"{_ACLS} --operation Describe --cluster, or inspection.log_sizes: false",
}
_COSTS = {
    PRODUCERS: "who writes to what they lead is not known, nor which transactions hang",
    LOG_DIRS: "how large topics with a replica there are is not known",
}


def inspection(settings: Settings, cluster: ClusterSettings, clock: Clock, seen: Snapshot) -> list[Finding]:
    """Inspect once what a poll saw, where that is configured, and say what brokers did not tell."""
    check, inspector = "inspection", make_inspector(cluster, settings, clock)
    if inspector is None:
        return []
    inspector.accept(seen)
    look = inspector.look()
    if look.at is None:
        return []
    if look.problem:
        return [told(check, Severity.WARNING, look.problem, "no producers and no log sizes are known")]
    failed = _failed(check, look)
    if failed:
        return failed
    asked = {PRODUCERS: "producers of {}", LOG_DIRS: "sizes of {}"}
    things = {PRODUCERS: "partition", LOG_DIRS: "replica"}
    words = [asked[spec].format(plural(number, things[spec])) for spec, number in sorted(look.asked.items())]
    return [Finding(check, Severity.OK, f"brokers tell the {' and the '.join(words)}")]


def _failed(check: str, look: Inspection) -> list[Finding]:
    counts: Counter[tuple[str, Reason]] = Counter()
    brokers: dict[tuple[str, Reason], set[int]] = {}
    for (spec, reason, broker), number in look.failures.items():
        counts[spec, reason] += number
        brokers.setdefault((spec, reason), set()).add(broker)
    return [
        Finding(
            check,
            Severity.WARNING,
            f"{spec} {reason}: not told of {counts[spec, reason]:,} of {look.asked[spec]:,} asked, "
            f"at broker{'s' * (len(ids) > 1)} {some(sorted(ids))}",
            _COSTS[spec],
            _MENDS.get((spec, reason), "see that these brokers are up, then run this again"),
        )
        for (spec, reason), ids in sorted(brokers.items())
    ]
