"""The command ``offsets``: offsets by time of many partitions, as a table or JSON."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TextIO

import click

from exporter.clock import SystemClock
from exporter.collectors.offsets import TIERED, OffsetRow, Spec, Time, list_offsets
from exporter.commands.options import narrow_topics
from exporter.commands.text_table import align
from exporter.domain.exit_codes import ExitCode
from exporter.domain.formatting import iso
from exporter.domain.polls.metadata import Metadata
from exporter.domain.polls.readings import Reason, State
from exporter.domain.ports import OffsetSource, SourceError
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
