"""The exporter as a process of its own, as a test that runs one sees it."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import httpx
import pyarrow.parquet as pq
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tests.demo.broker import free_port
from tests.plain_http import get
from tests.process_tree import descendants


def rows_of(history: Path, table: str) -> list[dict[str, Any]]:
    """Return the rows of all files of a table of the spool."""
    files = sorted((history / "spool" / table).glob("[!.]*.parquet"))
    return [row for file in files for row in pq.read_table(file, partitioning=None).to_pylist()]


class Exporter:
    """`topic-liveness serve` as its own process, on a free port; a context manager, which leaves nothing running.

    Without ``bootstrap`` the clusters are those of ``config`` or of ``TOPIC_LIVENESS_CLUSTERS`` in ``environment``.
    """

    config: Path | None = None
    program: Sequence[str] = ("-m", "exporter")

    def __init__(self, folder: Path, bootstrap: str | None = None, **environment: str) -> None:
        self.history = folder / "history"
        self.log = folder / "exporter.log"
        self.port = free_port()
        settings = {
            "TOPIC_LIVENESS_POLL__INTERVAL": "5s",
            "TOPIC_LIVENESS_POLL__REQUEST_TIMEOUT": "2s",
            "TOPIC_LIVENESS_POLL__MISSED_POLLS": "3",
            "TOPIC_LIVENESS_HISTORY__FOLDER": str(self.history),
            "TOPIC_LIVENESS_WEB__LISTEN": f"127.0.0.1:{self.port}",
            **environment,
        }
        given = [] if bootstrap is None else ["--bootstrap-server", bootstrap]
        given += [] if self.config is None else ["--config", str(self.config)]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, *self.program, "serve", *given],
                env={**os.environ, **settings},
                stdout=log,
                stderr=log,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: object, _trace: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if error is not None:
            print(self.log.read_text()[-6000:])

    def page(self, path: str) -> httpx.Response:
        return get(f"http://127.0.0.1:{self.port}{path}", timeout=30)

    def metrics(self) -> str:
        try:
            return self.page("/metrics").text
        except httpx.TransportError:
            assert self.process.poll() is None, self.log.read_text()
            return ""

    def value(self, name: str, **labels: str) -> float | None:
        found = (one.value for one in self.samples(name) if one.name == name and labels.items() <= one.labels.items())
        return next(found, None)

    def count(self, what: str, **labels: str) -> float:
        """Return the value of one of the exporter's own counters, 0 before anything was counted."""
        return self.value(f"topic_liveness_{what}_total", **labels) or 0.0

    def samples(self, name: str = "") -> list[Sample]:
        """Return the samples of one scrape whose names begin so; to parse all of a large cluster takes long."""
        text = "".join(line for line in self.metrics().splitlines(keepends=True) if line.startswith(name))
        return [sample for family in text_string_to_metric_families(text) for sample in family.samples]

    def clients(self) -> list[int]:
        """Return the ids of its processes with Kafka clients, in the order in which they were started."""
        return [pid for pid in descendants(self.process.pid) if _is_client(pid)]

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(120)


def _is_client(pid: int) -> bool:
    try:
        return b"multiprocessing.spawn" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):  # it has ended
        return False
