"""Figures of a run from Spark's event log: queries, jobs, stages, tasks, and the bytes that they read and wrote."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

_MIB = 2.0**20
_QUERY = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart"
_EVENTS = ("SparkListenerTaskEnd", "SparkListenerJobStart", "SparkListenerStageCompleted", _QUERY)
_COUNTED = tuple(f'{{"Event":"{name}"' for name in _EVENTS)


@dataclass(frozen=True, slots=True)
class Work:
    """What tasks did in a span of time; MiB as they are on disk or between tasks. The driver's own reading is none."""

    jobs: int = 0
    tasks: int = 0
    read: float = 0.0
    shuffled: float = 0.0
    spilled: float = 0.0
    written: float = 0.0
    queries: int = 0
    stages: int = 0

    def __add__(self, other: Work) -> Work:
        return Work(
            self.jobs + other.jobs,
            self.tasks + other.tasks,
            self.read + other.read,
            self.shuffled + other.shuffled,
            self.spilled + other.spilled,
            self.written + other.written,
            self.queries + other.queries,
            self.stages + other.stages,
        )


def recorded(folder: Path) -> dict[str, str]:
    """Return the settings with which Spark writes its event log into an existing folder."""
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": folder.as_uri(),
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
    }


def work_until(folder: Path, moments: Sequence[float]) -> list[Work]:
    """Return the work of the only log in a folder, cut at moments in order (Unix seconds); later work is left out."""
    (log,) = folder.iterdir()
    found = [Work() for _ in moments]
    with log.open(encoding="utf-8") as lines:
        for line in lines:
            if not line.startswith(_COUNTED):
                continue
            event = json.loads(line)
            if event["Event"] == "SparkListenerJobStart":
                at, work = event["Submission Time"], Work(jobs=1)
            elif event["Event"] == "SparkListenerStageCompleted":
                at, work = event["Stage Info"]["Completion Time"], Work(stages=1)
            elif event["Event"] == _QUERY:
                at, work = event["time"], Work(queries=1)
            else:
                at, work = event["Task Info"]["Finish Time"], _of_task(event.get("Task Metrics") or {})
            place = bisect_left(moments, at / 1000.0)
            if place < len(found):
                found[place] = found[place] + work
    return found


def largest_result(log: Path) -> int:
    """Return how many bytes the tasks of one stage sent to the driver, of the stage that sent most, in one log.

    They are what Spark sends: compressed, and some 2 KB a task about the task itself.
    """
    sent = Counter[tuple[int, int]]()
    with log.open(encoding="utf-8") as lines:
        for line in lines:
            if line.startswith('{"Event":"SparkListenerTaskEnd"'):
                event = json.loads(line)
                sent[event["Stage ID"], event["Stage Attempt ID"]] += event["Task Metrics"]["Result Size"]
    return max(sent.values())


def _of_task(metrics: dict[str, dict[str, int]]) -> Work:
    def mib(group: str, name: str) -> float:
        return metrics.get(group, {}).get(name, 0) / _MIB

    work = Work(
        tasks=1,
        read=mib("Input Metrics", "Bytes Read"),
        shuffled=mib("Shuffle Write Metrics", "Shuffle Bytes Written"),
        written=mib("Output Metrics", "Bytes Written"),
    )
    return replace(work, spilled=metrics.get("Disk Bytes Spilled", 0) / _MIB)  # type: ignore[operator]
