"""Sentences about what an audit found: the evidence for each topic, why one is unknown, and the summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np

from exporter.domain.arrays import Codes, Flags
from exporter.domain.formatting import ago, moment, plural, size
from exporter.domain.judging.audit import (
    DOUBTS,
    LIVE_SECONDS,
    LIVENESS,
    LIVENESS_CODES,
    AuditTopics,
    Doubt,
    Liveness,
    roles_of,
)
from exporter.domain.polls.readings import Reason, reason_of_code

_DOUBT_WORDS: Mapping[Doubt, str] = {
    Doubt.SECONDS: "the timestamps of its records are seconds, not milliseconds",
    Doubt.IMPLAUSIBLE: "the timestamps of its records lie before 2000",
    Doubt.AHEAD: "it has records dated in the future (microseconds in place of milliseconds?)",
}

_ROLE_WORDS = {
    "error topic": "a dead-letter, retry or error topic by its name, which is usually silent",
    "internal": "internal: it may hold state of an application",
    "compacted": "compacted: it may hold state that is read without being written",
    "kept for ever": "kept for ever: it may hold state",
}

_REASON_WORDS: Mapping[Reason, str] = {
    Reason.UNAUTHORIZED: "no right to describe it",
    Reason.UNKNOWN_TOPIC: "deleted while it was looked at",
    Reason.NO_LEADER: "no leader",
    Reason.LEADER_UNREACHABLE: "its broker does not answer",
    Reason.TIMED_OUT: "its broker did not answer in time",
    Reason.HIDDEN: "its broker names no newest record",
    Reason.UNSUPPORTED_FORMAT: "its records have no timestamps (message format before 0.10)",
}


def explain_topic(topics: AuditTopics, codes: Codes, row: int, now: float) -> str:
    """Return the evidence for what a topic is, as one sentence."""
    return "; ".join(clause for clause in _clauses(topics, LIVENESS[codes[row]], row, now) if clause)


def explain_unknown(topics: AuditTopics, row: int) -> str:
    """Return in a few words why a topic cannot be judged."""
    if topics.unread[row]:
        reason = reason_of_code(int(topics.reason[row]))
        return "interrupted before it was read" if reason is None else _REASON_WORDS.get(reason, str(reason))
    if doubt := _DOUBT_WORDS.get(DOUBTS[topics.doubt[row]]):
        return doubt
    return "too few records" if topics.looked_back[row] else "interrupted before its past was looked at"


def summarise(topics: AuditTopics, codes: Codes) -> str:
    """Return the summary line, as ``12 of 32 topics are abandoned (4.2 GiB); 1 died this week; ...``."""
    counted = Counter(codes.tolist())

    def count_of(one: Liveness) -> int:
        return counted[LIVENESS_CODES[one]]

    abandoned = codes == LIVENESS_CODES[Liveness.ABANDONED]
    verb = "is" if 1 in (count_of(Liveness.ABANDONED), len(topics)) else "are"
    of = plural(len(topics), "topic")
    clauses = [f"{count_of(Liveness.ABANDONED):,} of {of} {verb} abandoned{_bytes(topics, abandoned)}"]
    stateful = int(np.count_nonzero(abandoned & (topics.compacted | topics.internal | (topics.retention == np.inf))))
    if stateful:
        clauses.append(f"{stateful:,} of these may hold state (compacted, kept for ever or internal)")
    if errors := int(np.count_nonzero(abandoned & topics.errors)):
        clauses.append(f"{plural(errors, 'error topic')} among them")
    if died := count_of(Liveness.DIED):
        clauses.append(f"{died:,} died this week")
    if overdue := count_of(Liveness.OVERDUE):
        clauses.append(f"{overdue:,} {'is' if overdue == 1 else 'are'} overdue")
    if unknown := count_of(Liveness.UNKNOWN):
        rows = np.flatnonzero(codes == LIVENESS_CODES[Liveness.UNKNOWN]).tolist()
        causes = Counter(explain_unknown(topics, row) for row in rows).most_common()
        why = ", ".join(cause if len(causes) == 1 else f"{cause} ({number:,})" for cause, number in causes)
        clauses.append(f"{unknown:,} cannot be judged: {why}")
    return "; ".join(clauses)


def _bytes(topics: AuditTopics, chosen: Flags) -> str:
    known = topics.bytes[chosen]
    known = known[~np.isnan(known)]
    if not len(known):
        return ""
    least = "" if len(known) == np.count_nonzero(chosen) else "at least "
    return f" ({least}{size(int(known.sum()))})"


def _clauses(topics: AuditTopics, liveness: Liveness, row: int, now: float) -> Iterator[str | None]:
    last = float(topics.last_record[row])
    if liveness is Liveness.WRITTEN:
        if topics.advanced[row] and not now - last <= LIVE_SECONDS:
            dated = "records without a plausible time" if np.isnan(last) else f"records dated {moment(last)}"
            yield f"written while the audit ran, with {dated}: mirrored or back-dated"
        else:
            yield f"last record {ago(now - last)}"
    elif liveness is Liveness.UNKNOWN:
        unread, partitions = int(topics.unread[row]), int(topics.partitions[row])
        yield (f"{unread:,} of {plural(partitions, 'partition')} not read: " if 0 < unread < partitions else "") + (
            explain_unknown(topics, row)
        )
        if not np.isnan(last):
            yield f"newest record that is known: {moment(last)}"
        if not topics.unread[row] and topics.looked_back[row]:
            yield topics.evidence[row]
    elif liveness is Liveness.EMPTY:
        yield "empty: retention or somebody deleted its records; when it was last written is not known"
    elif liveness is Liveness.NEVER_WRITTEN:
        yield "never written"
    else:
        yield topics.evidence[row]
        searched, partitions = int(topics.searched[row]), int(topics.partitions[row])
        if searched < partitions:
            shows = "shows" if searched == 1 else "show"
            yield f"its past as {searched:,} of {plural(partitions, 'partition')} {shows} it"
    if liveness in (Liveness.DIED, Liveness.OVERDUE, Liveness.ABANDONED, Liveness.SILENT):
        yield f"{plural(int(topics.records[row]), 'record')} held"
    if topics.by_time[row]:
        yield "its newest record was found by look-ups by time: its broker names none (MAX_TIMESTAMP, Kafka 3.0)"
    if topics.copy_of[row] is not None:
        yield f"a copy that MirrorMaker makes from {topics.copy_of[row]}: its age is that of the original's records"
    yield from map(_ROLE_WORDS.__getitem__, roles_of(topics, row))
    yield _of_readers(topics, row)


def _of_readers(topics: AuditTopics, row: int) -> str | None:
    readers, committed = topics.readers[row], topics.committed[row]
    if readers is None:
        return None
    if readers:
        return f"{plural(len(readers), 'consumer group')} {'reads' if len(readers) == 1 else 'read'} it now"
    if committed:
        return f"no consumer group reads it now; {plural(len(committed), 'group')} committed in it"
    return "no consumer group reads it"
