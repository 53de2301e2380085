"""The set of Grafana dashboards: ``python -m dashboards.build`` writes their JSON into ``grafana`` beside this file.

It copies them and the rules into the chart, too. The JSON is committed, so that it can be imported as it is; a test
holds the two equal.
"""

import shutil
from pathlib import Path

from dashboards.board import text_of
from dashboards.exporter_health import exporter_health
from dashboards.groups import groups
from dashboards.overview import overview
from dashboards.panels import CLUSTER
from dashboards.replication import BOTH, EITHER, replication
from dashboards.topic import topic

FOLDER = Path(__file__).with_name("grafana")
CHART_FILES = Path(__file__).parents[1] / "helm" / "topic-liveness-exporter" / "files"
"""A chart reads no file outside of its folder."""


def build() -> dict[str, str]:
    """Return the JSON text of each dashboard by the name of its file."""
    return {
        "overview.json": text_of(overview(), "Deaths", "Incidents", "Rollups"),
        "topic.json": text_of(topic(), "Deaths", "Incidents", "Rollups"),
        "groups.json": text_of(groups(), "Deaths", "Incidents", "Rollups"),
        "replication.json": text_of(replication(), "Deaths", "Incidents", cluster=BOTH, topic=EITHER),
        "exporter.json": text_of(exporter_health(), "Deaths", "Incidents", "Rollups", topic=CLUSTER),
    }


if __name__ == "__main__":
    for name, text in build().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
        shutil.copy(FOLDER / name, CHART_FILES / "dashboards")
    for rules in ("alerts.yaml", "recording.yaml"):
        shutil.copy(FOLDER.with_name(rules), CHART_FILES)
