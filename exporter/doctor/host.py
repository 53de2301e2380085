"""Checks this host: the history folder, the web port, and what a rollup needs."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from exporter.commands.spark_job import SPARK
from exporter.doctor.findings import Finding, Severity, make_finding
from exporter.domain.formatting import ago, plural, size, spell_duration, spell_size
from exporter.domain.history.rows import AHEAD_SECONDS
from exporter.domain.ports import Clock
from exporter.domain.verdicts import WITHOUT_EXPECTATIONS
from exporter.history.published import Expectations
from exporter.history.spool import list_finished_files
from exporter.java import JavaError, java
from exporter.settings.schema import Settings
from exporter.storage.files import ObjectPath
from exporter.web.config_file import WebConfigError, WebConfigFile
from exporter.web.server import WebError, bind


def history(settings: Settings, clock: Clock) -> Iterator[Finding]:  # noqa: ARG001 - as all checks of this host
    """Check that the history folder is writable and has room for ``history.max_bytes``. Creates and writes nothing."""
    check = "history folder"
    if not settings.history.enabled:
        yield Finding(
            check,
            Severity.NOTE,
            "history is switched off (history.enabled)",
            f"nothing is learned: {WITHOUT_EXPECTATIONS}",
            "set history.enabled: true where verdicts are wanted",
        )
        return
    if isinstance(settings.history.folder, ObjectPath):
        yield _object_storage(settings.history.folder)
        return
    folder = settings.history.folder.absolute()
    there = next(place for place in (folder, *folder.parents) if _is_there(place))
    # No trial write: a file of another user could lock out the exporter.
    wrong = next((place for place in _places(folder, there) if not _usable(place)), None)
    if wrong is not None:
        cause = "cannot be written by" if wrong.is_dir() else "is not a folder that can be written by"
        yield Finding(
            check,
            Severity.ERROR,
            f"{wrong} {cause} user id {os.geteuid()}",
            "`serve` does not start (exit code 2)",
            "give the exporter's user write access, or set history.folder to another folder",
        )
        return
    free = shutil.disk_usage(there).free
    spool = sum(file.size for file in list_finished_files(folder / "spool"))
    limit = settings.history.max_bytes
    room = f"{size(free)} free, spool {size(spool)} of at most {spell_size(limit)}"
    state = "" if there == folder else " does not exist yet, `serve` creates it"
    if free < limit - spool:
        yield Finding(
            check,
            Severity.WARNING,
            f"{folder}{state}: {room}: the disk is full before history.max_bytes is reached",
            "history that cannot be written is lost when memory has to be freed; older files are not deleted in time",
            f"free some space, or set history.max_bytes below {size(free + spool)}",
        )
    else:
        yield Finding(check, Severity.OK, f"{folder}{state or ' can be written'}: {room}")


def _object_storage(folder: ObjectPath) -> Finding:
    check = "history folder"
    try:
        files = list_finished_files(folder / "spool")
    except OSError as error:
        return Finding(
            check,
            Severity.ERROR,
            f"{folder} cannot be listed: {error.strerror}",
            "`serve` does not start (exit code 2)",
            "check the bucket, the credentials and the rights to list, read, write and delete (docs/history.md)",
        )
    return Finding(check, Severity.OK, f"{folder} can be listed: {plural(len(files), 'file')} in the spool")


def expectations(settings: Settings, clock: Clock) -> Iterator[Finding]:
    """Check that the last rollup's expectations can be read and are recent enough to use."""
    check, limit = "expectations", settings.expectations.max_age
    found = Expectations(settings.history.folder)
    found.refresh()
    fix = "run `topic-liveness rollup` with this configuration, daily"
    if found.problem is not None:
        yield Finding(check, Severity.WARNING, found.problem, WITHOUT_EXPECTATIONS, fix)
    elif found.published is None:
        what = f"no rollup has published any in {found.folder}"
        yield Finding(
            check,
            Severity.NOTE,
            what,
            "no topic is judged by its own past until one has: only by an override or the age of its newest record",
            fix,
        )
    else:
        age = clock.now() - found.published.as_of
        what = f"{plural(len(found.published.rows), 'row')} as of {ago(age)}"
        if age < -AHEAD_SECONDS:
            what += " of this host's clock"
            fix = "correct the clock of this host or of the host that ran the rollup, then run `topic-liveness rollup`"
        elif age > limit:
            what += f", past expectations.max_age ({spell_duration(limit)})"
        else:
            yield Finding(check, Severity.OK, what)
            return
        yield Finding(check, Severity.WARNING, what, f"they are not used: {WITHOUT_EXPECTATIONS}", fix)


def web(settings: Settings, clock: Clock) -> Iterator[Finding]:  # noqa: ARG001 - as all checks of this host
    """Check that web.listen can be bound, and that web.config_file can be used. A running exporter has the port."""
    check, listen, costs = "web port", settings.web.listen, "`serve` does not start (exit code 2)"
    try:
        WebConfigFile(settings.web.config_file)
    except WebConfigError as error:
        fix = "correct it: docs/security.md shows what such a file holds"
        yield Finding(check, Severity.ERROR, f"web.config_file: {error}", costs, fix)
        return
    try:
        bind(listen).close()
    except WebError as error:
        what, _, fix = str(error).partition(". ")
        taken = isinstance(error.__context__, OSError) and error.__context__.errno == errno.EADDRINUSE
        severity = Severity.NOTE if taken else Severity.ERROR
        costs = f"none where it is this exporter that runs; else {costs}" if taken else costs
        yield Finding(check, severity, what.rstrip("."), costs, fix or None)
    else:
        yield Finding(check, Severity.OK, f"{listen} is free")


def rollup(settings: Settings, clock: Clock) -> Iterator[Finding]:  # noqa: ARG001 - as all checks of this host
    """Check for Java and the packages that rollup and report need. They may run on another host."""
    check, costs = "rollup", "no verdicts and no report from this host; where rollups run elsewhere, none"
    missing = [module for module in SPARK if find_spec(module) is None]
    if missing:
        what = f"{', '.join(missing)} is not installed"
        fix = "run it from the image with Spark, or in a checkout: pip install '.[spark]'"
        yield Finding(check, Severity.NOTE, what, costs, fix)
        return
    try:
        path = java()
    except JavaError as error:
        yield make_finding(check, Severity.NOTE, str(error), costs)
    else:
        yield Finding(check, Severity.OK, f"Spark and Java ({path}) are installed")


CHECKS = (history, expectations, web, rollup)


def _places(folder: Path, there: Path) -> Iterator[Path]:
    yield there
    spool = folder / "spool"
    yield from (place for place in (spool, *spool.glob("*")) if place.exists())


def _is_there(place: Path) -> bool:
    """Return whether a place is seen to exist; what lies in a folder of others may not be."""
    try:
        return place.exists()
    except PermissionError:
        return False


def _usable(place: Path) -> bool:
    return place.is_dir() and os.access(place, os.W_OK | os.X_OK)
