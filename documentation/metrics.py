"""The reference of metrics, from the catalogue."""

from collections.abc import Sequence

from exporter.metrics.catalogue import (
    EXPORTER_METRICS,
    GROUP_METRICS,
    PARTITION_METRICS,
    POLLED,
    REPLICA_METRICS,
    SWEPT,
    TOPIC_METRICS,
    Metric,
)
from exporter.settings.schema import MetricsSettings

DEFAULTS = MetricsSettings().partition

PARTS: Sequence[tuple[str, str, tuple[Metric, ...]]] = (
    (
        "Each partition",
        "Switched by `metrics.partition`; none of them with `metrics.granularity: topic`.",
        PARTITION_METRICS,
    ),
    ("Each topic and cluster", "", TOPIC_METRICS),
    (
        "Consumer groups",
        "As of the last sweep, every `groups.interval`. With `metrics.granularity: topic` none has a `partition`.",
        GROUP_METRICS,
    ),
    ("Each partition of a replica", "Only with the setting [`replicas`](mirrors-and-tiers.md).", REPLICA_METRICS),
    ("The exporter itself", "Beside these the usual `process_*` and `python_*`.", EXPORTER_METRICS),
)


def describe_metrics() -> str:
    """A table of each part of the catalogue."""
    return "\n\n".join(f"### {heading}\n\n{note}\n\n{_table(metrics)}" for heading, note, metrics in PARTS)


def _table(metrics: tuple[Metric, ...]) -> str:
    rows = ["| metric | type | labels | shown | meaning |", "|---|---|---|---|---|"]
    for metric in metrics:
        shown = "always" if metric.switch is None else f"`{metric.switch}`"
        if metric.switch in DEFAULTS:
            shown += " (default)"
        meaning = metric.help.removesuffix(POLLED).removesuffix(SWEPT).replace("|", r"\|")
        rows.append(f"| `{metric.name}` | {metric.type} | {', '.join(metric.labels)} | {shown} | {meaning} |")
    return "\n".join(rows)
