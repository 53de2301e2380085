"""The command ``audit``: what each topic is, from one look at the brokers, as a table, JSON or one HTML page."""

import math
import os
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

import numpy as np

from exporter.backfill.audit import AuditReader
from exporter.clock import SystemClock
from exporter.collectors.consumer_groups import GroupWatch
from exporter.collectors.log_sizes import ask_brokers
from exporter.commands.audit_formats import Audit, write_as
from exporter.commands.options import narrow_topics
from exporter.domain.arrays import Floats
from exporter.domain.exit_codes import ExitCode
from exporter.domain.formatting import list_some
from exporter.domain.judging.audit import URGENT, AuditTopics, Liveness, TopicRelations
from exporter.domain.judging.audit_wording import Record, make_records
from exporter.domain.polls.inspections import sizes_of
from exporter.domain.polls.metadata import Metadata
from exporter.domain.polls.readings import ANSWERED, Reason
from exporter.domain.polls.table import Snapshot, Table
from exporter.domain.ports import Clock, SourceError
from exporter.factory.sources import make_backfill_source, make_kafka_python_client
from exporter.kafka.process import LOG_SIZES, RemoteClient
from exporter.settings.schema import ClusterSettings, Settings
from exporter.storage.files import put
from exporter.waiting import show_waiting

WATCHED_SECONDS = 5.0
"""The shortest time between two looks at the end of a topic. One that advances in between is written now, whatever
timestamps its records carry: mirrored ones keep old ones."""


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """The values of the command line. ``silent_for`` is in seconds; empty ``topics`` are those of the settings."""

    topics: Sequence[str] = ()
    silent_for: float | None = None
    style: str = "table"
    output: Path | None = None
    verbose: bool = False


def audit_to(
    out: TextIO, errors: TextIO, clusters: Sequence[ClusterSettings], settings: Settings, wanted: AuditOptions
) -> int:
    """Audit ``clusters`` and write what was found to ``out``, or to the file that is ``wanted``; return the exit code.

    ``errors`` gets the progress. A cluster that does not answer costs only itself. After Ctrl-C what is known is
    written.
    """
    clock = SystemClock()
    found: list[AuditTopics] = []
    problems: list[str] = []
    failed = interrupted = False
    for cluster in clusters:
        reading = _ClusterAudit(narrow_topics(cluster, wanted.topics), settings, clock)
        try:
            with show_waiting(f"{cluster.name}: connecting") as show:
                reading.read(show)
        except SourceError as error:
            problems.append(f"cluster {cluster.name} is not read: {error.detail}")
            failed = True
        except KeyboardInterrupt:
            interrupted = True
        found += reading.topics()
        failed |= reading.lacks_topics
        problems += reading.problems
        if interrupted:
            break
    if not found:
        for problem in problems:
            print(f"Error: {problem}", file=errors)
        return ExitCode.INTERRUPTED if interrupted else ExitCode.FOUND
    audit = _conclude(found, wanted, clock.now(), problems, interrupted=interrupted)
    text = write_as(audit, wanted.style, verbose=wanted.verbose)
    if wanted.output is None:
        out.write(text)
    else:
        try:
            if wanted.output.exists() and not wanted.output.is_file():
                wanted.output.write_bytes(text.encode())  # a device or a pipe
            else:
                put(Path(os.path.realpath(wanted.output)), lambda file: file.write(text.encode()))
        except OSError as error:
            print(f"Error: --output {str(wanted.output)!r} cannot be written: {error.strerror}", file=errors)
            return ExitCode.NOT_STARTED
        print(audit.summary, file=errors)
    if interrupted:
        return ExitCode.INTERRUPTED
    return ExitCode.FOUND if failed or any(one["what"] in URGENT for one in audit.shown) else ExitCode.DONE


class _ClusterAudit:
    """The audit of one cluster, of which a part is known when it is interrupted."""

    def __init__(self, cluster: ClusterSettings, settings: Settings, clock: Clock) -> None:
        self._cluster, self._settings, self._clock = cluster, settings, clock
        self._reader: AuditReader | None = None
        self._relations = TopicRelations()
        self.problems: list[str] = []
        self.lacks_topics = False
        """Whether a pattern matches no topic."""

    def read(self, show: Callable[[str], None]) -> None:
        """Read the cluster, and show what is under way. Raises SourceError where it does not answer."""
        name = self._cluster.name
        with closing(make_backfill_source(self._cluster, self._settings)) as source:
            metadata = source.metadata()
            self._note_unmatched(metadata.unmatched)
            overrides = [one.make_override() for one in self._settings.overrides]
            reader = AuditReader(
                source,
                metadata,
                name,
                self._clock,
                overrides=overrides,
                tick=lambda what, done, of: show(f"{name}: {done:,} of {of:,} {what}"),
            )
            self._reader = reader
            begun = self._clock.monotonic()
            reader.read_ends()
            show(f"{name}: reading consumer groups and log sizes")
            self._read_relations(source, reader)
            reader.look_back()
            show(f"{name}: looking for advances")
            reader.find_advances(begun + WATCHED_SECONDS)

    def topics(self) -> list[AuditTopics]:
        """Return what is known so far; nothing where the cluster did not answer."""
        if self._reader is None:
            return []
        errors = re.compile(self._settings.audit.error_topics)
        return [self._reader.topics(self._relations, errors=errors, in_scope=self._in_scope)]

    def _read_relations(self, source: RemoteClient, reader: AuditReader) -> None:
        self._relations = _read_readers(source, reader.metadata, self._clock)
        try:
            with make_kafka_python_client(LOG_SIZES, self._cluster, self._settings) as client:
                sizes, why = _read_sizes(client, reader.metadata, self._clock)
            self._relations = replace(self._relations, bytes=sizes)
        except SourceError as error:
            why = error.detail
        if why is not None:
            self.problems.append(f"cluster {self._cluster.name}: sizes are not all known: {why}")
        self.problems += [f"cluster {self._cluster.name}: {problem}" for problem in self._relations.problems]

    def _note_unmatched(self, patterns: Sequence[str]) -> None:
        self.lacks_topics = bool(patterns)
        for pattern in patterns:
            self.problems.append(
                f"cluster {self._cluster.name}: {pattern!r} matches no visible topic: it must match the whole name, "
                "and the principal needs DESCRIBE on the topic"
            )

    def _in_scope(self, topic: str) -> bool:
        wanted = self._cluster.topics
        if topic.startswith("__") and not wanted.internal:
            return False
        included = any(re.fullmatch(pattern, topic) for pattern in wanted.include)
        return included and not any(re.fullmatch(pattern, topic) for pattern in wanted.exclude)


def _conclude(
    found: Sequence[AuditTopics], wanted: AuditOptions, now: float, problems: Sequence[str], *, interrupted: bool
) -> Audit:
    records = [record for topics in found for record in make_records(topics, now)]
    shown = [record for record in records if _is_wanted(record, wanted.silent_for)]
    shown.sort(key=lambda one: (_URGENCY[one["what"]], _place_silence(one), one["cluster"], one["topic"]))
    return Audit(records, shown, now, problems, interrupted)


def _is_wanted(record: Record, silent_for: float | None) -> bool:
    if silent_for is None:
        return True
    known = record["silence_seconds"] is not None and record["what"] != Liveness.WRITTEN
    return known and record["silence_seconds"] >= silent_for


def _place_silence(record: Record) -> float:
    """The longest silence comes first, one that is not known last."""
    last: float | None = record["last_record"]
    return math.inf if last is None else last


_URGENCY = {what: place for place, what in enumerate(Liveness)}


def _read_readers(source: RemoteClient, metadata: Metadata, clock: Clock) -> TopicRelations:
    """Sweep all consumer groups once, for their assignments and committed offsets. Raises no Kafka error."""
    watch = GroupWatch("", clock, source, interval=math.inf)
    # A table without leaders: lags are not wanted, and no end of a log is looked up.
    table = Table.empty(metadata.membership.layout)
    watch.accept(Snapshot("", clock.now(), clock.monotonic(), 0.0, metadata, table, {}, {}))
    sweep = watch.sweep()
    if sweep.reason is not None:
        return TopicRelations(problems=(f"consumer groups are not known: {sweep.problem}",))
    positions, names = sweep.positions, sweep.positions.rows.names
    assigned, committed = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
    for name, topics in zip(names, positions.assigned, strict=True):
        for topic in topics:
            assigned[topic].add(name)
    rows, _ = positions.rows.group_by_topic()
    for group, number in zip(rows.group.tolist(), rows.partition.tolist(), strict=True):
        committed[rows.layout.topics[number]].add(names[group])
    failed = {*sweep.failures, *sweep.unlisted}
    if names and not sweep.all_visible:
        failed.add(Reason.UNAUTHORIZED)
    unclear = [names[group] for group in np.flatnonzero(~positions.settled & (positions.undescribed == ANSWERED))]
    others = ["perhaps others"] if sweep.others is None else sorted(sweep.others)
    why = [f"some consumer groups are not known: {', '.join(sorted(failed))}"] if failed else []
    if unclear:
        why.append(f"groups that rebalance do not say what they read: {list_some(unclear)}")
    if others:
        why.append(f"share and streams groups do not say what they read: {list_some(others)}")
    return TopicRelations(
        {topic: tuple(sorted(names)) for topic, names in assigned.items()},
        {topic: tuple(sorted(names - assigned[topic])) for topic, names in committed.items()},
        not why,
        problems=tuple(why),
    )


def _read_sizes(client: RemoteClient, metadata: Metadata, clock: Clock) -> tuple[Floats, str | None]:
    """Return the bytes of all replicas of each topic, NaN where not all are known, and why some are unknown.

    Raises SourceError where it cannot connect, or its process ends.
    """
    brokers = dict(ask_brokers(client, metadata, clock, {}))
    disk = sizes_of(metadata, brokers).disk_bytes_of_topics
    reasons = {str(logs.sizes.missing) for logs in brokers.values() if not logs.sizes.log.known.all()}
    return np.where(disk.known, disk.value, np.nan), ", ".join(sorted(reasons)) or None
