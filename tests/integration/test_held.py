"""By a real broker, topics that fell silent together are held, and unrelated deaths beside them are not."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from exporter.demo.broker import Broker
from tests.integration.serving import Exporter, until
from tests.unit.promised import HOUR, by_clock, publish
from tests.workbench import Workbench

DIED = [f"died-{number}" for number in range(8)]
FELL = [f"fell-{number}" for number in range(8)]
LIVE = [f"live-{number:02}" for number in range(34)]


def test_what_fell_silent_together_is_held_until_it_comes_back(tmp_path: Path, broker: Broker) -> None:
    """Eight deaths in a day, hours apart, are dead; eight topics that stopped after that within minutes are held.

    The metric counts what shows held, `explain` says what the exporter serves; when most are back the rest are dead.
    """
    mark = f"-{time.time_ns()}"
    workbench, now = Workbench(broker.bootstrap), time.time()
    names = [f"{name}{mark}" for name in (*DIED, *FELL, *LIVE)]
    for name in names:
        workbench.create(name)
    workbench.write([(name, 0, now) for name in names])
    ages = [*np.linspace(33.0, 54.0, len(DIED)), *np.linspace(30.0, 30.1, len(FELL)), *np.zeros(len(LIVE))]
    scores = {"clock_step": 1.0, "suspect_score": 2.5, "dead_score": 3.0}
    rows = [
        by_clock(
            [1.0] * 168,
            cluster="default",
            topic=name,
            topic_id=None,
            partition=partition,
            as_of=now,
            end_offset=1,
            last_advance=now - age * HOUR,
            **scores,
        )
        for name, age in zip(names, ages, strict=True)
        for partition in (0, None)
    ]
    publish(tmp_path / "history", *rows)
    with Exporter(tmp_path, broker.bootstrap) as running:

        def shown(verdict: str) -> set[str]:
            samples = (one for one in running.samples() if one.name == "kafka_topic_verdict" and one.value == 1)
            mine = (one.labels for one in samples if one.labels["topic"].endswith(mark))
            return {labels["topic"].removesuffix(mark) for labels in mine if labels["verdict"] == verdict}

        until(lambda: (shown("dead"), shown("held")) == (set(DIED), set(FELL)), "each has its verdict")
        assert running.value("topic_liveness_held_topics") == len(FELL)
        listed = running.page("/api/v1/topics?verdict=held").json()["items"]
        found = [one for one in listed if one["topic"].endswith(mark)]
        assert {one["topic"] for one in found} == {f"{name}{mark}" for name in FELL}
        assert len({one["incident"] for one in found}) == 1

        def explained(name: str) -> str:
            asked = [sys.executable, "-m", "exporter", "explain", f"{name}{mark}", "--history", str(running.history)]
            asked += ["--bootstrap-server", broker.bootstrap]
            return subprocess.run(asked, capture_output=True, text=True, check=True, env={**os.environ}).stdout

        said = explained(FELL[3])
        assert "verdict       held" in said
        assert f"8 of {len(names)} topics fell silent together" in said
        assert all(f"{name}{mark}" in said for name in FELL[:3])
        assert "verdict       dead" in explained(DIED[0])
        workbench.write([(f"{name}{mark}", 0, time.time()) for name in FELL[:3]])
        until(lambda: shown("dead") == {*DIED, *FELL[3:]}, "the rest, alone, are dead")
        assert shown("held") == set()
        assert running.value("topic_liveness_held_topics") == 0
        assert running.end() == 0, running.log.read_text()
