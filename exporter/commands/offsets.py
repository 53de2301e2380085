"""The command ``offsets``: offsets by time of many partitions (KIP-79, KIP-734, KIP-1005), as a table or JSON."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple, TextIO

import click
import numpy as np

from exporter.backfill.cutoff import read_logs
from exporter.clock import SystemClock
from exporter.commands.options import narrow_topics
from exporter.commands.text_table import align
from exporter.domain.arrays import Codes, Flags, Floats, replace_nan
from exporter.domain.exit_codes import ExitCode
from exporter.domain.formatting import iso
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
from exporter.factory.sources import make_source, make_tier_client
from exporter.settings.quantities import parse_duration
from exporter.settings.rules import check_regex
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

_IN_TABLE = ("cluster", "topic", "partition", "time", "offset", "timestamp", "reason")


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
    NOT_ASKED = "not-asked"
    """No client for tiers is installed."""


class OffsetRow(NamedTuple):
    """One partition at one time. Unknown values are None; ``timestamp`` is in Unix seconds.

    ``reason`` is set where there is no offset, where a record has no timestamp, and where the timestamp lies in the
    future. LATEST and EARLIEST are positions, not records: they never have a timestamp. ``partition`` is None for a
    topic that could not be described.
    """

    topic: str
    partition: int | None
    time: Time
    offset: int | None = None
    timestamp: float | None = None
    reason: State | Reason | Gap | None = None


@dataclass(frozen=True, slots=True)
class OffsetsRequest:
    """The values of the command line; empty ``topics`` means the configured topics."""

    times: Sequence[Time]
    topics: Sequence[str] = ()
    internal: bool = False

    @classmethod
    def parse(
        cls, times: Sequence[str], topics: Sequence[str], now: float, *, internal: bool = False
    ) -> OffsetsRequest:
        """Check the values of ``--time`` and ``--topic``; ``now`` is Unix seconds. Raises click.BadParameter."""
        for pattern in topics:
            try:
                check_regex(pattern)
            except ValueError as error:
                raise click.BadParameter(f"{error}, got {pattern!r}", param_hint="--topic") from None
        # Each once: two spellings of a time are one.
        parsed = dict.fromkeys(parse_time(text.strip(), now) for text in times)
        return cls(list(parsed), list(dict.fromkeys(topics)), internal)


def parse_time(text: str, now: float) -> Time:
    """Read a value of ``--time``; ``now`` is Unix seconds. Raises click.BadParameter."""
    if text in set(Spec):
        return Spec(text)
    try:
        ms = _milliseconds(text, now)
    except (ValueError, OverflowError):
        ms = -1
    if not 0 <= ms <= _LAST_MS:
        raise click.BadParameter(f"{_RULE}; got {text!r}", param_hint="--time")
    return ms / 1000


def _milliseconds(text: str, now: float) -> int:
    if re.fullmatch(r"\d+", text, re.ASCII):
        return int(text)
    if re.fullmatch(r"-\d.*[a-z]", text, re.ASCII):
        return math.ceil((now - parse_duration(text[1:])) * 1000)
    read = datetime.fromisoformat(text)
    moment = read if read.tzinfo is not None else read.replace(tzinfo=UTC)
    # The first record at or after a moment: a part of a millisecond is rounded up.
    return -((_EPOCH - moment) // timedelta(milliseconds=1))


def list_to(
    out: TextIO,
    errors: TextIO,
    clusters: Iterable[ClusterSettings],
    settings: Settings,
    request: OffsetsRequest,
    style: str,
    connect: Callable[[ClusterSettings, Settings], OffsetSource] = make_source,
) -> int:
    """Write the offsets of ``clusters`` to ``out``, as ``table`` or ``json``; return the exit code.

    ``errors`` gets a line for each cluster that fails, also where only its tiers fail, and for each pattern that
    matches no topic.
    """
    complete = True
    lines: list[dict[str, Any]] = []
    answered: list[Metadata] = []
    for cluster in clusters:
        source = connect(narrow_topics(cluster, request.topics, internal=request.internal), settings)
        try:
            with ExitStack() as ending:
                ending.callback(source.close)
                with show_waiting(f"reading {cluster.name}"):
                    metadata = source.metadata()
                tier = None
                if TIERED.intersection(request.times):
                    try:
                        tier = ending.enter_context(make_tier_client(cluster, settings))
                        tier.wants()  # connects
                    except SourceError as error:
                        tier = None
                        print(f"Error: cluster {cluster.name}: {error.detail}", file=errors)
                        complete = False
                with show_waiting(f"looking up offsets of {cluster.name}"):
                    rows = list_offsets(source, metadata, request.times, SystemClock(), tier=tier)
        except SourceError as error:
            print(f"Error: cluster {cluster.name}: {error.detail}", file=errors)
            complete = False
            continue
        answered.append(metadata)
        complete = complete and not any(
            isinstance(row.reason, Reason) or row.reason is State.UNSUPPORTED for row in rows
        )
        lines += [_fields(cluster.name, row) for row in rows]
    for problem in _unmatched(request, answered):
        print(f"Error: {problem}", file=errors)
        complete = False
    if style == "json":
        text = ",\n".join(map(json.dumps, lines))
        out.write(f"[\n{text}\n]\n" if lines else "[]\n")
    else:
        _write_table(out, lines)
    return ExitCode.DONE if complete else ExitCode.FOUND


def _unmatched(request: OffsetsRequest, answered: Sequence[Metadata]) -> Iterator[str]:
    """Yield the patterns that match no topic of any cluster that answered."""
    for pattern in request.topics:
        if answered and all(pattern in metadata.unmatched for metadata in answered):
            if any(pattern in metadata.only_internal for metadata in answered):
                yield f"--topic {pattern!r} matches internal topics only; to see them add --internal"
            else:
                yield (
                    f"--topic {pattern!r} matches no visible topic; it must match the whole name, and the principal "
                    "needs DESCRIBE on the topic"
                )
    if not request.topics and answered and not any(metadata.topics for metadata in answered):
        yield "the configured topics (topics.include, topics.exclude) match no visible topic"


def _fields(cluster: str, row: OffsetRow) -> dict[str, Any]:
    return {
        "cluster": cluster,
        "topic": row.topic,
        "partition": row.partition,
        "time": str(row.time) if isinstance(row.time, Spec) else iso(row.time),
        "offset": row.offset,
        "timestamp": None if row.timestamp is None else iso(row.timestamp),
        "timestamp_ms": None if row.timestamp is None else round(row.timestamp * 1000),
        "reason": None if row.reason is None else str(row.reason),
    }


def _write_table(out: TextIO, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write aligned columns, with the cluster only where there are several."""
    names = [name for name in _IN_TABLE if name != "cluster" or len({row["cluster"] for row in rows}) > 1]
    cells = [names, *([_cell(name, row[name]) for name in names] for row in rows)]
    out.writelines(f"{line}\n" for line in align(cells, [names.index("partition"), names.index("offset")]))


def _cell(name: str, value: object) -> str:
    if value is None:
        return "" if name == "reason" else "-"
    return str(value)


def list_offsets(
    source: OffsetSource, metadata: Metadata, times: Sequence[Time], clock: Clock, *, tier: Any = None
) -> list[OffsetRow]:
    """Return a row for each partition of ``metadata`` and each of ``times``, by topic, partition and time.

    ``times`` must not repeat; those in ``TIERED`` are looked up only with ``tier``, a ``TierClient``. A failure of one
    partition is in its rows.
    """
    layout, leader = metadata.membership.layout, metadata.membership.leader
    lookups = _OffsetLookups(source, metadata, clock)
    found = {time: lookups.find(time, tier) for time in times}
    rows = []
    for name in layout.topics:
        refused, part = metadata.topics[name].reason, layout.rows_of(name)
        if refused is not None and part.start == part.stop:
            rows += [OffsetRow(name, None, time, reason=refused) for time in times]
        for row in range(part.start, part.stop):
            for time, (answers, reason) in found.items():
                offset = int(answers.offset[row]) if answers.found[row] else None
                why = refused or Reason.NO_LEADER if leader[row] == NO_LEADER else reason[row]
                rows.append(
                    OffsetRow(name, int(layout.partition[row]), time, offset, replace_nan(answers.timestamp[row]), why)
                )
    return rows


class _OffsetLookups:
    """The look-ups of one run. Results are answers, and the reasons beside them as a column of objects."""

    def __init__(self, source: OffsetSource, metadata: Metadata, clock: Clock) -> None:
        self._source, self._metadata, self._clock = source, metadata, clock
        self._leader = metadata.membership.leader
        self._led = np.flatnonzero(self._leader != NO_LEADER)
        self._future_after = clock.now() + FUTURE_SLACK_SECONDS

    def find(self, time: Time, tier: Any) -> tuple[Answers, Strings]:
        """Look up one time of every partition."""
        if time in TIERED and tier is None:
            return Answers.make_blank(len(self._leader)), objects([Gap.NOT_ASKED] * len(self._leader))
        if time is Spec.MAX_TIMESTAMP:
            answers, reason = self._find_newest()
        elif isinstance(time, Spec):
            answers, reason = self._find_position(time, tier)
        else:
            answers, reason = self._find_since(time)
        reason[answers.found & (answers.timestamp > self._future_after)] = State.FUTURE
        return answers, reason

    def _find_position(self, spec: Spec, tier: Any) -> tuple[Answers, Strings]:
        answers, membership = Answers.make_blank(len(self._leader)), self._metadata.membership.part(self._led)
        if spec in TIERED:
            answers.put(self._led, tier.tier(spec, membership))
        else:
            look_up = self._source.ends if spec is Spec.LATEST else self._source.starts
            answers.put(self._led, look_up(membership))
        answers.timestamp[:] = np.nan
        reason = _REASONS[answers.reason]
        nothing = Gap.NOTHING_TIERED if spec is Spec.LATEST_TIERED else Reason.MISSING_ANSWER
        reason[(answers.reason == ANSWERED) & ~answers.found] = nothing
        return answers, reason

    def _find_since(self, time: float) -> tuple[Answers, Strings]:
        # The newest records first: one that is written meanwhile is found.
        newest, state, why = self._read_logs(by_spec=False)
        answers = self._by_time(self._leader != NO_LEADER, np.full(len(self._leader), time))
        none = (answers.reason == ANSWERED) & ~answers.found
        dated, later = np.isin(state, _DATED), np.nan_to_num(newest.timestamp) >= time
        reason = np.where(none, why, _REASONS[answers.reason])
        reason[none & dated] = Gap.NO_RECORD_SINCE
        # Where a later record exists, the broker looked into a segment that hides it.
        reason[none & ((dated & later) | (state == STATE_CODES[State.PENDING]))] = Reason.HIDDEN
        reason[answers.found & np.isnan(answers.timestamp)] = State.NO_TIMESTAMP
        return answers, reason

    def _find_newest(self) -> tuple[Answers, Strings]:
        newest, state, reason = self._read_logs(by_spec=True)
        newest = newest[np.arange(len(newest))]  # other times look at it too
        newest.found[:] &= np.isin(state, _DATED) & ~np.isnan(newest.timestamp)
        newest.timestamp[~newest.found] = np.nan
        reason[newest.found] = None
        # Brokers 3.0 to 3.7 return a wrong offset (KAFKA-16310): without a look-up that confirms it, it is unknown.
        # Later timestamps became END_OF_TIME, so that a look-up of it may find another record.
        asked = newest.found & (newest.timestamp < END_OF_TIME)
        confirmed = self._by_time(asked, newest.timestamp)
        lost = asked & ~confirmed.found
        reason[lost] = _REASONS[confirmed.reason[lost]]
        reason[lost & (confirmed.reason <= ANSWERED)] = Reason.HIDDEN
        newest.offset[asked], newest.found[asked] = confirmed.offset[asked], confirmed.found[asked]
        newest.timestamp[confirmed.found] = confirmed.timestamp[confirmed.found]
        return newest, reason

    @cached_property
    def _logs(self) -> tuple[Answers, Answers, Answers]:
        return read_logs(self._source, self._metadata, self._led, self._clock)[1:]

    def _read_logs(self, *, by_spec: bool) -> tuple[Answers, Codes, Strings]:
        """Return the newest records, the states, and why there is no newest record."""
        first, last, newest = self._logs
        tiered = self._metadata.tiered[self._metadata.membership.layout.topic]
        unable = [broker for broker, known in self._source.max_timestamp_supported().items() if by_spec and not known]
        given = Circumstances(tiered, np.isin(self._leader, unable), self._future_after)
        states, reasons = states_of(first.offset, last.offset, newest, given)
        unread = ~first.found | ~last.found
        failed = np.where(first.found, last.reason, first.reason)
        failed[failed <= ANSWERED] = NO_ANSWER
        why = np.where(reasons > ANSWERED, _REASONS[reasons], _STATES[states])
        why[unread] = _REASONS[failed[unread]]
        return newest, np.where(unread, UNREADABLE, states), why

    def _by_time(self, wanted: Flags, times: Floats) -> Answers:
        """Return the first record at or after the time of each wanted partition (Unix seconds)."""
        answers, rows = Answers.make_blank(len(wanted)), np.flatnonzero(wanted)
        milliseconds = np.round(times[rows] * 1000).astype(np.int64)
        answers.put(rows, self._source.look_up_times(self._metadata.membership, rows, milliseconds))
        return answers


_STATES = objects(STATES)
_REASONS = objects([None, *REASONS, Reason.MISSING_ANSWER])
"""By reason code: the last one is that of NO_ANSWER."""
_DATED = [STATE_CODES[State.OBSERVED], STATE_CODES[State.FUTURE]]
