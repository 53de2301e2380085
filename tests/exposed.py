"""The text of series, for tests that show those of one kind alone."""

from collections.abc import Iterable, Mapping

from exporter.metrics.catalogue import PARTITION_METRICS, TOPIC_METRICS, Metric
from exporter.metrics.groups import GroupSeries
from exporter.metrics.series import ClusterSeries
from exporter.state.exposition import add_headers, families


def exposed(
    clusters: Mapping[str, ClusterSeries | GroupSeries],
    now: float,
    metrics: Iterable[Metric] = PARTITION_METRICS + TOPIC_METRICS,
) -> str:
    """Return the exposition of clusters as of ``now``."""
    shown = {name: series.shown for name, series in clusters.items()}
    found = families(metrics, shown, dict.fromkeys(clusters, now))
    return b"".join(block.text for block in add_headers(found)).decode()
