"""The commands that are Spark jobs. Each runs as a process of its own, never inside the exporter."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.util import find_spec
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import click

from exporter.domain.history.rows import FIRST_YEAR
from exporter.signals import wait_for

if TYPE_CHECKING:
    from exporter.domain.learning.rest_days import Calendar
    from exporter.domain.verdicts import Outage, TopicOverride
    from exporter.settings.schema import Settings

SPARK = ("spark_rollups", "pyspark", "delta", "jinja2")
"""The modules that a job needs."""

_OURS = {"PYTHONSAFEPATH": "1", "TOPIC_LIVENESS_PROGRAM": "topic-liveness"}
"""Variables of a job: it imports nothing from the working directory, and names the command in its messages."""


def list_rollup_options(settings: Settings, as_of: str | None) -> list[str]:
    """Return the options that say how a job judges as of a moment, which the job checks, and for how long it keeps it.

    Raises ClickException where no file can be written.
    """
    rollup, year = settings.rollup, datetime.now(UTC).year
    with suppress(ValueError):
        year = min(max(FIRST_YEAR, datetime.fromisoformat(as_of or "").year), year)
    accepted = f"--false-alarms={rollup.false_alarms_per_1000_topic_weeks}"
    if rollup.false_alarms_a_week is not None:
        accepted = f"--false-alarms-a-week={rollup.false_alarms_a_week}"
    return [
        accepted,
        f"--retention-days={math.ceil(rollup.retention / 86400)}",
        *_as_file("--overrides", [override.make_override() for override in settings.overrides]),
        *_as_file("--outages", [outage.make_outage() for outage in settings.outages]),
        *_as_file("--calendars", [one.make_calendar(year) for one in settings.calendars]),
    ]


def list_report_options(settings: Settings) -> list[str]:
    """Return the options that say how a job writes the report."""
    links = dataclasses.asdict(settings.links.make_links())
    return ["--zone", settings.report.time_zone, "--links", json.dumps(links)]


def _as_file(option: str, rows: Sequence[TopicOverride | Outage | Calendar]) -> list[str]:
    """Write the rows to an unnamed file that the job inherits: a command line argument holds 128 KiB at most."""
    if not rows:
        return []
    try:
        with tempfile.TemporaryFile("w", encoding="utf-8") as file:
            json.dump([dataclasses.asdict(one) for one in rows], file)
            file.seek(0)
            descriptor = os.dup(file.fileno())
    except OSError as error:
        raise click.ClickException(
            f"a temporary file for {option} could not be written: {error.strerror}. Name a folder with room in TMPDIR"
        ) from None
    os.set_inheritable(descriptor, True)
    return [option, f"@/dev/fd/{descriptor}"]


def become_job(verb: str, settings: Settings, as_of: str | None, *options: str) -> NoReturn:
    """Replace this process by the Spark job, which then has its signals, output and exit code."""
    command = _command(verb, settings, as_of, options)
    sys.stdout.flush()
    os.execve(sys.executable, command, {**os.environ, **_OURS})  # noqa: S606 - no shell is the point


def run_job(verb: str, settings: Settings, as_of: str | None, *options: str) -> int:
    """Run the Spark job to its end and return its exit code. It gets the signals that end this process."""
    command = _command(verb, settings, as_of, options)
    job: subprocess.Popen[bytes] | None = None
    early = list[int]()

    def receive(number: int, _frame: FrameType | None) -> None:
        if job is None:
            early.append(number)
        elif number == signal.SIGTERM:  # Ctrl-C goes to both; the job ends by it, and says so
            job.terminate()

    before = {number: signal.signal(number, receive) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        # The job reads the files of _as_file, the only descriptors that are inheritable.
        with subprocess.Popen(command, env={**os.environ, **_OURS}, close_fds=False) as job:
            for number in early:
                job.send_signal(number)
            code = wait_for(job)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code


def _command(verb: str, settings: Settings, as_of: str | None, options: Sequence[str]) -> list[str]:
    """Return the command of a job. Raises UsageError where it could not run.

    Where ``spark-submit`` started this process, its master holds unless the settings name one.
    Neither the job nor a Python worker of Spark imports from the working directory: other users may write to it.
    """
    missing = [module for module in SPARK if find_spec(module) is None]
    if missing:
        raise click.UsageError(
            f"{verb} needs Spark, and {', '.join(missing)} is not installed. In a checkout install it with "
            "`pip install '.[spark]'`, or run the image with Spark"
        )
    command = [sys.executable, "-m", "spark_rollups.job", verb]
    command += ["--history", str(settings.history.folder)]
    if "PYSPARK_GATEWAY_PORT" not in os.environ or "master" in settings.rollup.model_fields_set:
        command += ["--master", settings.rollup.master]
    command += [] if as_of is None else ["--as-of", as_of]
    return [*command, *options]
