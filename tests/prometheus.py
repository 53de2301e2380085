"""A real Prometheus that scrapes one address."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.demo.broker import free_port
from tests.plain_http import NO_TLS
from tests.programs import program, running
from tests.waiting import until

Ask = Callable[..., Any]
"""(endpoint below /api/v1, parameters) -> the field ``data`` of the answer."""


@contextmanager
def scraping(address: str, folder: Path) -> Iterator[Ask]:
    """Run a Prometheus in ``folder`` until the block ends, which begins with the first scrape."""
    target = {"targets": [address]}
    scrape = {"job_name": "topic-liveness", "scrape_interval": "1s", "static_configs": [target]}
    (folder / "prometheus.yml").write_text(yaml.safe_dump({"scrape_configs": [scrape]}), encoding="utf-8")
    port = free_port()
    command = [
        program("prometheus"),
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (
        running(command, f"http://127.0.0.1:{port}/-/ready", folder / "prometheus.log"),
        httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", timeout=30, verify=NO_TLS) as api,
    ):

        def ask(endpoint: str, **parameters: Any) -> Any:
            answer = api.get(f"/{endpoint}", params=parameters)
            assert answer.is_success, f"{parameters}: {answer.text}"
            return answer.json()["data"]

        until(lambda: ask("query", query="scrape_samples_scraped > 0")["result"], "a scrape")
        yield ask
