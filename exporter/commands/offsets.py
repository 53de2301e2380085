"""The command ``offsets``: offsets by time of many partitions (KIP-79, KIP-734, KIP-1005), as a table or JSON."""

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple, TextIO

import numpy as np

from exporter.backfill.cutoff import read_logs
from exporter.clock import SystemClock
from exporter.commands.options import narrow_topics
from exporter.domain.arrays import Codes, Flags, Floats, replace_nan
from exporter.domain.exit_codes import ExitCode
from exporter.domain.formatting import align, iso
from exporter.domain.history.streams import Strings, objects
from exporter.domain.polls.activity import Circumstances, states_of
from exporter.domain.polls.layout import NO_LEADER
from exporter.domain.polls.metadata import Metadata
from exporter.domain.polls.readings import (
    ANSWERED,
    END_OF_TIME,
    FUTURE_SLACK_SECONDS,
    NO_ANSWER,
    REASONS,
    Answers,
    Reason,
    State,
)
from exporter.domain.polls.table import STATE_CODES, STATES, UNREADABLE
from exporter.domain.ports import Clock, OffsetSource, SourceError
from exporter.factory.sources import make_kafka_python_client, make_source
from exporter.kafka.process import TIERS
from exporter.settings.quantities import parse_duration
from exporter.settings.schema import ClusterSettings, Settings
from exporter.waiting import show_waiting

_RULE = (
    "must be latest, earliest, max-timestamp, earliest-local, latest-tiered, a time from 1970 to 9999 such as "
    "2026-03-03T12:00:00Z or 2026-03-03 (UTC where no zone is given), milliseconds since 1970, or a time ago such as "
    "-2h"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS = 253_402_300_799_999
"""The end of the year 9999."""


class Spec(StrEnum):
    """The named positions in a log, spelled as in Kafka's own tools."""

    LATEST = "latest"
    """One past the newest record."""
    EARLIEST = "earliest"
    """The first record in any tier."""
    MAX_TIMESTAMP = "max-timestamp"
    """The first record with the largest timestamp (KIP-734, brokers 3.0 and newer)."""
    EARLIEST_LOCAL = "earliest-local"
    """The first record on the broker's own disk (KIP-405, brokers 3.5 and newer)."""
    LATEST_TIERED = "latest-tiered"
    """The last record in the remote tier (KIP-1005, brokers 3.9 and newer)."""


TIERED = frozenset({Spec.EARLIEST_LOCAL, Spec.LATEST_TIERED})
"""librdkafka (2.16.1) refuses these: another client looks them up."""

Time = Spec | float
"""What to look up: a named position, or the first record at or after a time (Unix seconds)."""


class Gap(StrEnum):
    """Why a good answer has no offset or no timestamp, besides ``State`` and ``Reason``."""

    NO_RECORD_SINCE = "no-record-since"
    """The partition has records, but none at or after the time."""
    NOTHING_TIERED = "nothing-tiered"


class OffsetRow(NamedTuple):
    """One partition at one time, as JSON has it. Unknown values are None.

    ``reason`` is set where there is no offset, where a record has no timestamp, and where the timestamp lies in the
    future. LATEST and EARLIEST are positions, not records: they never have a timestamp. ``partition`` is None for a
    topic that could not be described.
    """

    cluster: str
    topic: str
    partition: int | None
    time: str
    offset: int | None = None
    timestamp: str | None = None
    """ISO 8601."""
    timestamp_ms: int | None = None
    reason: State | Reason | Gap | None = None


def parse_time(text: str) -> Time:
    """Read a value of ``--time``. Raises ValueError with the rule."""
    text = text.strip()
    if text in set(Spec):
        return Spec(text)
    try:
        ms = _milliseconds(text)
    except (ValueError, OverflowError):
        ms = -1
    if not 0 <= ms <= _LAST_MS:
        raise ValueError(_RULE)
    return ms / 1000


def _milliseconds(text: str) -> int:
    if re.fullmatch(r"\d+", text, re.ASCII):
        return int(text)
    if re.fullmatch(r"-\d.*[a-z]", text, re.ASCII):
        return math.ceil((SystemClock().now() - parse_duration(text[1:])) * 1000)
    read = datetime.fromisoformat(text)
    moment = read if read.tzinfo is not None else read.replace(tzinfo=UTC)
    # The first record at or after a moment: a part of a millisecond is rounded up.
    return -((_EPOCH - moment) // timedelta(milliseconds=1))


def list_to(
    out: TextIO,
    errors: TextIO,
    clusters: Iterable[ClusterSettings],
    settings: Settings,
    times: Sequence[Time],
    topics: Sequence[str] = (),
    *,
    style: str,
    internal: bool = False,
) -> int:
    """Write the offsets of ``clusters`` to ``out``, as ``table`` or ``json``; return the exit code.

    Without ``topics`` these are of the configured ones. ``errors`` gets a line for each cluster that fails, and for
    each pattern that matches no topic.
    """
    problems: list[str] = []
    rows: list[OffsetRow] = []
    answered: list[Metadata] = []
    for cluster in clusters:
        source = make_source(narrow_topics(cluster, topics, internal=internal), settings)
        try:
            with ExitStack() as ending:
                ending.callback(source.close)
                ending.enter_context(show_waiting(f"looking up offsets of {cluster.name}"))
                tier = None
                if TIERED.intersection(times):
                    tier = ending.enter_context(make_kafka_python_client(TIERS, cluster, settings))
                    tier.wants()  # connects
                metadata = source.metadata()
                rows += list_offsets(cluster.name, source, metadata, list(dict.fromkeys(times)), SystemClock(), tier)
        except SourceError as error:
            problems.append(f"cluster {cluster.name}: {error.detail}")
        else:
            answered.append(metadata)
    problems += _unmatched(topics, answered)
    for problem in problems:
        print(f"Error: {problem}", file=errors)
    if style == "json":
        text = ",\n".join(json.dumps(row._asdict()) for row in rows)
        out.write(f"[\n{text}\n]\n" if rows else "[]\n")
    else:
        _write_table(out, rows)
    return ExitCode.FOUND if problems or any(isinstance(row.reason, Reason) for row in rows) else ExitCode.DONE


def _unmatched(topics: Sequence[str], answered: Sequence[Metadata]) -> Iterator[str]:
    """Yield the patterns that match no topic of any cluster that answered."""
    for pattern in topics:
        if answered and all(pattern in metadata.unmatched for metadata in answered):
            yield (
                f"--topic {pattern!r} matches no visible topic; it must match the whole name, the principal needs "
                "DESCRIBE on the topic, and a name that begins with __ needs --internal"
            )
    if not topics and answered and not any(metadata.topics for metadata in answered):
        yield "the configured topics (topics.include, topics.exclude) match no visible topic"


def _write_table(out: TextIO, rows: Sequence[OffsetRow]) -> None:
    """Write aligned columns, with the cluster only where there are several."""
    hidden = {"timestamp_ms"} if len({row.cluster for row in rows}) > 1 else {"timestamp_ms", "cluster"}
    names = [name for name in OffsetRow._fields if name not in hidden]
    cells = [names]
    for row in rows:
        known = {name: "-" if value is None else str(value) for name, value in row._asdict().items()}
        cells.append([known[name] for name in names[:-1]] + [row.reason or ""])
    out.writelines(f"{line}\n" for line in align(cells, [names.index("partition"), names.index("offset")]))


def list_offsets(
    cluster: str, source: OffsetSource, metadata: Metadata, times: Sequence[Time], clock: Clock, tier: Any = None
) -> Iterator[OffsetRow]:
    """Yield a row for each partition of ``metadata`` and each of ``times``, by topic, partition and time.

    ``times`` must not repeat; those in ``TIERED`` need ``tier``, a ``TierClient``. A failure of one partition is in its
    rows.
    """
    layout, leader = metadata.membership.layout, metadata.membership.leader
    lookups = _OffsetLookups(source, metadata, clock)
    shown = {time: str(time) if isinstance(time, Spec) else iso(time) for time in times}
    found = {shown[time]: lookups.find(time, tier) for time in times}
    for name in layout.topics:
        refused, part = metadata.topics[name].reason, layout.rows_of(name)
        if refused is not None and part.start == part.stop:
            yield from (OffsetRow(cluster, name, None, time, reason=refused) for time in found)
        for row in range(part.start, part.stop):
            for time, (answers, reason) in found.items():
                at = replace_nan(answers.timestamp[row])
                yield OffsetRow(
                    cluster,
                    name,
                    int(layout.partition[row]),
                    time,
                    offset=int(answers.offset[row]) if answers.found[row] else None,
                    timestamp=None if at is None else iso(at),
                    timestamp_ms=None if at is None else round(at * 1000),
                    reason=refused or Reason.NO_LEADER if leader[row] == NO_LEADER else reason[row],
                )


class _OffsetLookups:
    """The look-ups of one run. Results are answers, and the reasons beside them as a column of objects."""

    def __init__(self, source: OffsetSource, metadata: Metadata, clock: Clock) -> None:
        self._source, self._metadata, self._clock = source, metadata, clock
        self._led = metadata.membership.leader != NO_LEADER
        self._future_after = clock.now() + FUTURE_SLACK_SECONDS

    def find(self, time: Time, tier: Any) -> tuple[Answers, Strings]:
        """Look up one time of every partition."""
        if time is Spec.MAX_TIMESTAMP:
            answers, reason = self._find_newest()
        elif isinstance(time, Spec):
            answers, reason = self._find_position(time, tier)
        else:
            answers, reason = self._find_since(time)
        reason[answers.found & (answers.timestamp > self._future_after)] = State.FUTURE
        return answers, reason

    def _find_position(self, spec: Spec, tier: Any) -> tuple[Answers, Strings]:
        rows, answers = np.flatnonzero(self._led), Answers.make_blank(len(self._led))
        membership = self._metadata.membership.part(rows)
        if spec in TIERED:
            answers.put(rows, tier.tier(spec, membership))
        else:
            answers.put(rows, (self._source.ends if spec is Spec.LATEST else self._source.starts)(membership))
        answers.timestamp[:] = np.nan
        reason = _REASONS[answers.reason]
        nothing = Gap.NOTHING_TIERED if spec is Spec.LATEST_TIERED else Reason.MISSING_ANSWER
        reason[(answers.reason == ANSWERED) & ~answers.found] = nothing
        return answers, reason

    def _find_since(self, time: float) -> tuple[Answers, Strings]:
        # The newest records first: one that is written meanwhile is found.
        newest, state, why = self._logs
        answers = self._find_first(self._led, np.full(len(self._led), time))
        none = (answers.reason == ANSWERED) & ~answers.found
        dated, later = np.isin(state, _DATED), np.nan_to_num(newest.timestamp) >= time
        reason = np.where(none, why, _REASONS[answers.reason])
        reason[none & dated] = Gap.NO_RECORD_SINCE
        # Where a later record exists, the broker looked into a segment that hides it.
        reason[none & ((dated & later) | (state == STATE_CODES[State.PENDING]))] = Reason.HIDDEN
        reason[answers.found & np.isnan(answers.timestamp)] = State.NO_TIMESTAMP
        return answers, reason

    def _find_newest(self) -> tuple[Answers, Strings]:
        newest, state, why = self._logs
        known = newest.found & np.isin(state, _DATED) & ~np.isnan(newest.timestamp)
        # Brokers 3.0 to 3.7 return a wrong offset (KAFKA-16310): without a look-up that confirms it, it is unknown.
        # Later timestamps became END_OF_TIME, so that a look-up of it may find another record.
        answers = self._find_first(known & (newest.timestamp < END_OF_TIME), newest.timestamp)
        reason = np.where(known, _REASONS[answers.reason], why)
        reason[known & ~answers.found & (answers.reason <= ANSWERED)] = Reason.HIDDEN
        unconfirmed = known & ~answers.found
        answers.timestamp[unconfirmed] = newest.timestamp[unconfirmed]
        return answers, reason

    @cached_property
    def _logs(self) -> tuple[Answers, Codes, Strings]:
        """The newest records, the states, and why there is no newest record."""
        _, first, last, newest = read_logs(self._source, self._metadata, np.flatnonzero(self._led), self._clock)
        tiered = self._metadata.tiered[self._metadata.membership.layout.topic]
        given = Circumstances(tiered, np.zeros_like(self._led), self._future_after)
        states, reasons = states_of(first.offset, last.offset, newest, given)
        unread = ~first.found | ~last.found
        failed = np.where(first.found, last.reason, first.reason)
        reasons[unread] = np.where(failed <= ANSWERED, NO_ANSWER, failed)[unread]
        states[unread] = UNREADABLE
        return newest, states, np.where(states == UNREADABLE, _REASONS[reasons], _STATES[states])

    def _find_first(self, wanted: Flags, times: Floats) -> Answers:
        """Return the first record at or after the time of each wanted partition (Unix seconds)."""
        answers, rows = Answers.make_blank(len(wanted)), np.flatnonzero(wanted)
        milliseconds = np.round(times[rows] * 1000).astype(np.int64)
        answers.put(rows, self._source.look_up_times(self._metadata.membership, rows, milliseconds))
        return answers


_STATES = objects(STATES)
_REASONS = objects([None, *REASONS, Reason.MISSING_ANSWER])
"""By reason code: the last one is that of NO_ANSWER."""
_DATED = [STATE_CODES[State.OBSERVED], STATE_CODES[State.FUTURE]]
