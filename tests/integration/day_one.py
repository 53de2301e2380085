"""The first day as a user lives it, on a real cluster: ``serve``, ``backfill``, ``rollup`` and ``report``."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.integration.serving import Exporter
from tests.waiting import until


class DayOne:
    """An exporter with default settings, whose history lies in ``folder``, and the commands beside it."""

    def __init__(self, folder: Path, bootstrap: str, *topics: str) -> None:
        """``topics`` are patterns of names."""
        self.folder, self.history, self._config = folder, folder / "history", folder / "serve.yaml"
        self._config.write_text(
            f"clusters: [{{name: prod, kafka: {{bootstrap.servers: '{bootstrap}'}}, "
            f"topics: {{include: {json.dumps(topics)}}}}}]\nhistory: {{folder: '{self.history}'}}\n"
        )
        self.serving = type("Configured", (Exporter,), {"config": self._config})

    def run(self, *arguments: str) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "exporter", *arguments, "--config", str(self._config)],
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def report(self) -> Mapping[str, Any]:
        """Run a backfill, and a rollup with its report, and return the report's JSON."""
        self.run("backfill")
        self.run("rollup", "--report", "--master", "local[2]")
        [path] = (self.history / "published" / "reports").glob("*/liveness.json")
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    def poll(self, topics: int) -> dict[str, str]:
        """Serve until so many topics have a verdict and their inventory is written; return the verdicts."""
        with self.serving(self.folder) as exporter:
            until(lambda: len(verdicts(exporter)) == topics, "the first poll")
            until(lambda: any((self.history / "spool" / "inventory").glob("*.parquet")), "the inventory")
            return verdicts(exporter)


def verdicts(exporter: Exporter) -> dict[str, str]:
    """The verdict of each topic, by /metrics."""
    return {
        sample.labels["topic"]: sample.labels["verdict"]
        for sample in exporter.samples("kafka_topic_verdict{")
        if sample.value == 1
    }


def sections_of(report: Mapping[str, Any]) -> dict[str, list[str]]:
    """The topics of each section of a report."""
    return {one["key"]: [entry["topic"] for entry in one["entries"]] for one in report["sections"]}
