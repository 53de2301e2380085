"""The commands that are Spark jobs: each becomes a process of its own, which never shares one with the exporter."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from importlib.util import find_spec
from typing import NoReturn

import click

from exporter.settings import Settings

SPARK = ("spark_rollups", "pyspark", "delta", "jinja2")
"""The modules that a job needs."""


def overrides(settings: Settings) -> list[str]:
    """Hand the overrides to a job that may run where the configuration is, and knows nothing of its form."""
    if not settings.overrides:
        return []
    told = [dataclasses.asdict(override.as_override()) for override in settings.overrides]
    return ["--overrides", json.dumps(told)]


def outages(settings: Settings) -> list[str]:
    """Hand over the known outages."""
    if not settings.outages:
        return []
    return ["--outages", json.dumps([dataclasses.asdict(outage.as_outage()) for outage in settings.outages])]


def become_job(verb: str, settings: Settings, as_of: str | None, *options: str) -> NoReturn:
    """Replace this process by the Spark job: its signals, output and exit code are then simply its own."""
    missing = [module for module in SPARK if find_spec(module) is None]
    if missing:
        raise click.UsageError(
            f"{verb} needs Spark, and {', '.join(missing)} is not installed. Install it with "
            "`pip install 'topic-liveness[spark]'`"
        )
    command = [sys.executable, "-m", "spark_rollups.job", verb]
    command += ["--history", str(settings.history.folder), "--master", settings.rollup.master]
    command += [] if as_of is None else ["--as-of", as_of]
    sys.stdout.flush()
    os.execv(sys.executable, [*command, *options])  # noqa: S606 - no shell is the point
