"""Checks what inspections need: the second client, and a right that only inspections use."""

from __future__ import annotations

from exporter.collectors.log_sizes import Inspector
from exporter.doctor.findings import Finding, Severity, from_error
from exporter.domain.formatting import named, plural
from exporter.domain.polls.readings import Reason
from exporter.kafka.kafka_python_answers import LOG_DIRS

_GRANT = (
    "kafka-acls.sh --bootstrap-server ... --add --allow-principal User:PRINCIPAL --operation Describe --cluster, or "
    "inspection.log_sizes: false"
)


def inspection(inspector: Inspector | None) -> list[Finding]:
    """Inspect once what a poll saw, where that is configured, and report what brokers did not answer."""
    check = "inspection"
    if inspector is None:
        return []
    result = inspector.inspect()
    if result.at is None:
        return []
    if result.problem:
        return [from_error(check, Severity.WARNING, result.problem, "no log sizes are known")]
    findings = []
    for reason in sorted({reason for reason, _ in result.failures}):
        counts = {broker: count for (why, broker), count in result.failures.items() if why is reason}
        findings.append(
            Finding(
                check,
                Severity.WARNING,
                f"{LOG_DIRS} {reason}: no answer for {sum(counts.values()):,} of {result.lookups:,}, "
                f"at {named('broker', sorted(counts))}",
                "sizes of topics with a replica on them are unknown",
                _GRANT if reason is Reason.UNAUTHORIZED else "check that these brokers are up, then run `doctor` again",
            )
        )
    return findings or [Finding(check, Severity.OK, f"brokers list the sizes of {plural(result.lookups, 'replica')}")]
