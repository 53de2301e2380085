"""Checks this host: the history folder, the web port, and what a rollup needs."""

import errno
import os
import shutil
from importlib.util import find_spec

from exporter.commands.spark_job import SPARK
from exporter.doctor.findings import Finding, Severity, make_finding
from exporter.domain.formatting import ago, plural, size, spell_duration, spell_size
from exporter.domain.history.rows import AHEAD_SECONDS
from exporter.domain.ports import Clock
from exporter.domain.verdicts import WITHOUT_EXPECTATIONS
from exporter.history.published import Expectations
from exporter.history.spool import list_finished_files
from exporter.history.tables import TABLES
from exporter.java import JavaError, java
from exporter.settings.schema import Settings
from exporter.storage.files import ObjectPath
from exporter.web.config_file import WebConfigError, WebConfigFile
from exporter.web.server import WebError, bind

_STOPS = "`serve` does not start (exit code 2)"


def history(settings: Settings, clock: Clock) -> Finding:  # noqa: ARG001 - as all checks of this host
    """Check that the history folder is writable and has room for ``history.max_bytes``. Creates and writes nothing."""
    check, folder, limit = "history folder", settings.history.folder, settings.history.max_bytes
    if not settings.history.enabled:
        what, costs = "history is switched off (history.enabled)", f"nothing is learned: {WITHOUT_EXPECTATIONS}"
        return Finding(check, Severity.NOTE, what, costs, "set history.enabled: true where verdicts are wanted")
    if isinstance(folder, ObjectPath):
        return _object_storage(folder)
    folder = folder.absolute()
    # A folder of others may hide what is in it.
    there = next(place for place in (folder, *folder.parents) if os.path.exists(place))
    spool = folder / "spool"
    tables = (spool / table for table in TABLES.values())
    places = (there, *(place for place in (spool, *tables) if os.path.exists(place)))
    # No trial write: a file of another user could lock out the exporter.
    if wrong := [place for place in places if not (os.path.isdir(place) and os.access(place, os.W_OK | os.X_OK))]:
        cause = "cannot be written by" if os.path.isdir(wrong[0]) else "is not a folder that can be written by"
        fix = "give the exporter's user write access, or set history.folder to another folder"
        return Finding(check, Severity.ERROR, f"{wrong[0]} {cause} user id {os.geteuid()}", _STOPS, fix)
    free = shutil.disk_usage(there).free
    used = sum(file.size for file in list_finished_files(spool))
    room = f"{size(free)} free, spool {size(used)} of at most {spell_size(limit)}"
    state = "" if there == folder else " does not exist yet, `serve` creates it"
    if free >= limit - used:
        return Finding(check, Severity.OK, f"{folder}{state or ' can be written'}: {room}")
    what = f"{folder}{state}: {room}: the disk is full before history.max_bytes is reached"
    costs = "history that cannot be written is lost when memory has to be freed; older files are not deleted in time"
    fix = f"free some space, or set history.max_bytes below {size(free + used)}"
    return Finding(check, Severity.WARNING, what, costs, fix)


def _object_storage(folder: ObjectPath) -> Finding:
    check = "history folder"
    try:
        files = list_finished_files(folder / "spool")
    except OSError as error:
        fix = "check the bucket, the credentials and the rights to list, read, write and delete (docs/history.md)"
        return Finding(check, Severity.ERROR, f"{folder} cannot be listed: {error.strerror}", _STOPS, fix)
    return Finding(check, Severity.OK, f"{folder} can be listed: {plural(len(files), 'file')} in the spool")


def expectations(settings: Settings, clock: Clock) -> Finding:
    """Check that the last rollup's expectations can be read and are recent enough to use."""
    check, limit = "expectations", settings.expectations.max_age
    found = Expectations(settings.history.folder)
    found.refresh()
    fix = "run `topic-liveness rollup` with this configuration, daily"
    if found.problem is not None:
        return Finding(check, Severity.WARNING, found.problem, WITHOUT_EXPECTATIONS, fix)
    if found.published is None:
        what = f"no rollup has published any in {found.folder}"
        costs = "no topic is judged by its own past until one has: only by an override or the age of its newest record"
        return Finding(check, Severity.NOTE, what, costs, fix)
    age = clock.now() - found.published.as_of
    what = f"{plural(len(found.published.rows), 'row')} as of {ago(age)}"
    if age < -AHEAD_SECONDS:
        what += " of this host's clock"
        fix = "correct the clock of this host or of the host that ran the rollup, then run `topic-liveness rollup`"
    elif age > limit:
        what += f", past expectations.max_age ({spell_duration(limit)})"
    else:
        return Finding(check, Severity.OK, what)
    return Finding(check, Severity.WARNING, what, f"they are not used: {WITHOUT_EXPECTATIONS}", fix)


def web(settings: Settings, clock: Clock) -> Finding:  # noqa: ARG001 - as all checks of this host
    """Check that web.listen can be bound, and that web.config_file can be used. A running exporter has the port."""
    check, listen = "web port", settings.web.listen
    try:
        WebConfigFile(settings.web.config_file)
        bind(listen).close()
    except WebConfigError as error:
        fix = "correct it: docs/security.md shows what such a file holds"
        return Finding(check, Severity.ERROR, f"web.config_file: {error}", _STOPS, fix)
    except WebError as error:
        what, _, fix = str(error).partition(". ")
        if isinstance(error.__context__, OSError) and error.__context__.errno == errno.EADDRINUSE:
            return Finding(check, Severity.NOTE, what, f"none where it is this exporter that runs; else {_STOPS}", fix)
        return Finding(check, Severity.ERROR, what, _STOPS, fix)
    return Finding(check, Severity.OK, f"{listen} is free")


def rollup(settings: Settings, clock: Clock) -> Finding:  # noqa: ARG001 - as all checks of this host
    """Check for Java and the packages that rollup and report need. They may run on another host."""
    check, costs = "rollup", "no verdicts and no report from this host; where rollups run elsewhere, none"
    if missing := [module for module in SPARK if find_spec(module) is None]:
        fix = "run it from the image with Spark, or in a checkout: pip install '.[spark]'"
        return Finding(check, Severity.NOTE, f"{', '.join(missing)} is not installed", costs, fix)
    try:
        return Finding(check, Severity.OK, f"Spark and Java ({java()}) are installed")
    except JavaError as error:
        return make_finding(check, Severity.NOTE, str(error), costs)


CHECKS = (history, expectations, web, rollup)
