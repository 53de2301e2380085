"""Addresses that reports and pages link to."""

from dataclasses import dataclass
from urllib.parse import quote


@dataclass(frozen=True, slots=True)
class Links:
    """Addresses as configured; None where there is none."""

    dashboard: str | None = None
    topic_dashboard: str | None = None
    """Of one topic, with ``{cluster}`` and ``{topic}`` in place of its names."""
    runbook: str | None = None
    exporter: str | None = None
    """The exporter's pages, without a slash at the end; a topic is at ``topics/<cluster>/<topic>`` below it."""

    def dashboard_of(self, cluster: str, topic: str) -> str | None:
        """Return the address of a topic's dashboard."""
        if self.topic_dashboard is None:
            return None
        return self.topic_dashboard.replace("{cluster}", quote(cluster, "")).replace("{topic}", quote(topic, ""))

    def page_of(self, cluster: str, topic: str) -> str | None:
        """Return the address of a topic's page of the exporter."""
        if self.exporter is None:
            return None
        return f"{self.exporter}/topics/{quote(cluster, '')}/{quote(topic, '')}"
