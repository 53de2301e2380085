"""The upkeep of the history folder: what fails in it is counted, shown and tried again."""

import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.factory.sources import connect
from exporter.history.published import Expectations
from exporter.kafka.process import ClientProcess
from exporter.service import serving
from exporter.settings.schema import Settings
from tests.demo.broker import free_port
from tests.plain_http import get
from tests.waiting import until


class ServiceWithUpkeep:
    """A service at work on a history, and its pages."""

    def __init__(self, history: Path, poll_interval: str = "30s") -> None:
        listen = f"127.0.0.1:{free_port()}"
        nowhere = {"bootstrap.servers": f"127.0.0.1:{free_port()}"}
        settings = Settings.model_validate(
            {
                "clusters": [{"name": "prod", "kafka": nowhere}],
                "poll": {"request_timeout": "1s", "interval": poll_interval},
                "history": {"folder": history, "max_bytes": "1MiB"},
                "web": {"listen": listen},
            }
        )
        processes = {"prod": ClientProcess("prod")}
        self.service = serving.Service(settings, processes, connect(settings, processes))
        self._address = f"http://{listen}"

    def failures(self, step: str) -> float:
        page = get(f"{self._address}/metrics").text
        [count] = re.findall(rf'^topic_liveness_upkeep_failures_total{{step="{step}"}} (\S+)$', page, re.MULTILINE)
        return float(count)

    def page(self) -> str:
        return get(f"{self._address}/").text


@pytest.fixture
def upkeep_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServiceWithUpkeep]:
    """A service whose upkeep comes every tenth of a second."""
    monkeypatch.setattr(serving, "UPKEEP_SECONDS", 0.1)
    made = ServiceWithUpkeep(tmp_path)
    made.service.start()
    yield made
    made.service.stop()


def test_a_spool_that_cannot_be_kept_in_bounds_is_counted_and_shown(
    upkeep_service: ServiceWithUpkeep, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A link to what cannot be looked at: said once, counted each time, gone from the page once over."""
    assert (upkeep_service.failures("spool"), upkeep_service.failures("expectations")) == (0, 0)
    stray = tmp_path / "spool" / "windows" / "windows-a.parquet"
    full = tmp_path / "spool" / "windows" / "windows-b.parquet"
    stray.symlink_to("x" * 300)
    full.touch()
    os.truncate(full, 2**21)
    until(lambda: upkeep_service.failures("spool") >= 3, "three rounds that failed")
    problem = f"upkeep of the history, spool: {stray}: File name too long"
    assert f"Problem: {problem}" in upkeep_service.page()
    assert caplog.messages.count(problem) == 1
    assert full.exists()
    stray.unlink()
    until(lambda: not full.exists(), "the spool within its bounds")
    until(lambda: "Problem" not in upkeep_service.page(), "the problem over")
    assert upkeep_service.failures("expectations") == 0


def test_an_error_in_one_step_leaves_the_other_at_work(
    upkeep_service: ServiceWithUpkeep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    quoted = secrets.token_hex()

    def failing(_: Expectations) -> bool:
        raise RuntimeError(quoted)

    monkeypatch.setattr(Expectations, "refresh", failing)
    until(lambda: upkeep_service.failures("expectations") >= 2, "two rounds that failed")
    full = tmp_path / "spool" / "windows" / "windows-b.parquet"
    full.touch()
    os.truncate(full, 2**21)
    until(lambda: not full.exists(), "the spool within its bounds")
    [text] = [message for message in caplog.messages if "an internal error" in message]
    problem, *frames = text.splitlines()
    assert problem.startswith("upkeep of the history, expectations: an internal error (RuntimeError); ")
    assert any(", in failing" in frame for frame in frames)
    assert f"Problem: {problem}" in upkeep_service.page()
    assert quoted not in upkeep_service.page() + caplog.text
    assert upkeep_service.failures("spool") == 0
