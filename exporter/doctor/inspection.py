"""Checks what inspections need: the second client, and rights that only inspections use."""

from __future__ import annotations

from collections import Counter

from exporter.collectors.producers_log_sizes import Inspection, Inspector
from exporter.doctor.findings import Finding, Severity, from_error
from exporter.domain.formatting import named, plural
from exporter.domain.polls.readings import Reason
from exporter.kafka.kafka_python_answers import LOG_DIRS, PRODUCERS

_ACLS = "kafka-acls.sh --bootstrap-server ... --add --allow-principal User:PRINCIPAL"
_FIXES = {
    (PRODUCERS, Reason.UNAUTHORIZED): f"{_ACLS} --operation Read --topic '*', or inspection.producers: false",
    (PRODUCERS, Reason.UNSUPPORTED_VERSION): "upgrade the brokers: they answer from Kafka 2.8 on (KIP-664)",
    (LOG_DIRS, Reason.UNAUTHORIZED): f"{_ACLS} --operation Describe --cluster, or inspection.log_sizes: false",
}
_COSTS = {
    PRODUCERS: "producers and hanging transactions of the partitions that they lead are unknown",
    LOG_DIRS: "sizes of topics with a replica on them are unknown",
}


def inspection(inspector: Inspector | None) -> list[Finding]:
    """Inspect once what a poll saw, where that is configured, and report what brokers did not answer."""
    check = "inspection"
    if inspector is None:
        return []
    result = inspector.inspect()
    if result.at is None:
        return []
    if result.problem:
        return [from_error(check, Severity.WARNING, result.problem, "no producers and no log sizes are known")]
    failed = _failed(check, result)
    if failed:
        return failed
    phrases = {PRODUCERS: "producers of {}", LOG_DIRS: "sizes of {}"}
    things = {PRODUCERS: "partition", LOG_DIRS: "replica"}
    answered = [phrases[spec].format(plural(number, things[spec])) for spec, number in sorted(result.lookups.items())]
    return [Finding(check, Severity.OK, f"brokers list the {' and the '.join(answered)}")]


def _failed(check: str, result: Inspection) -> list[Finding]:
    counts: Counter[tuple[str, Reason]] = Counter()
    brokers: dict[tuple[str, Reason], set[int]] = {}
    for (spec, reason, broker), number in result.failures.items():
        counts[spec, reason] += number
        brokers.setdefault((spec, reason), set()).add(broker)
    return [
        Finding(
            check,
            Severity.WARNING,
            f"{spec} {reason}: no answer for {counts[spec, reason]:,} of {result.lookups[spec]:,}, "
            f"at {named('broker', sorted(ids))}",
            _COSTS[spec],
            _FIXES.get((spec, reason), "check that these brokers are up, then run `doctor` again"),
        )
        for (spec, reason), ids in sorted(brokers.items())
    ]
