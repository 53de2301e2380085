"""What an audit found as records for people: what each topic is, the evidence for it, and the summary of all."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from exporter.domain.arrays import replace_nan
from exporter.domain.formatting import ago, moment, plural, size
from exporter.domain.judging.audit import (
    DOUBTS,
    LIVE_SECONDS,
    LIVENESS,
    NOT_JUDGED,
    AuditTopics,
    Doubt,
    Liveness,
    classify,
    roles_of,
)
from exporter.domain.polls.readings import Reason, reason_of_code
from exporter.domain.verdicts import VERDICTS

Record = Mapping[str, Any]

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

_STATEFUL = frozenset({"internal", "compacted", "kept for ever"})

_REASON_WORDS: Mapping[Reason, str] = {
    Reason.UNAUTHORIZED: "no right to describe it",
    Reason.UNKNOWN_TOPIC: "deleted while it was looked at",
    Reason.NO_LEADER: "no leader",
    Reason.LEADER_UNREACHABLE: "its broker does not answer",
    Reason.TIMED_OUT: "its broker did not answer in time",
    Reason.HIDDEN: "its broker names no newest record",
    Reason.UNSUPPORTED_FORMAT: "its records have no timestamps (message format before 0.10)",
}


def make_records(topics: AuditTopics, now: float) -> Iterator[Record]:
    """Yield a record of each topic as of ``now`` (Unix seconds), as JSON has it; None is unknown."""
    for row, code in enumerate(classify(topics, now).tolist()):
        last, verdict = replace_nan(topics.last_record[row]), int(topics.verdict[row])
        record = {
            "cluster": topics.cluster[row],
            "topic": topics.topic[row],
            "what": str(LIVENESS[code]),
            "why_unknown": _explain_unknown(topics, row) if LIVENESS[code] is Liveness.UNKNOWN else None,
            "roles": roles_of(topics, row),
            "verdict": None if verdict == NOT_JUDGED else str(VERDICTS[verdict]),
            "last_record": last,
            "silence_seconds": None if last is None else max(0.0, now - last),
            "longest_silence_seconds": replace_nan(topics.longest_silence[row]),
            "readers": None if topics.readers[row] is None else list(topics.readers[row]),
            "committed": list(topics.committed[row]),
            "bytes": None if math.isnan(topics.bytes[row]) else int(topics.bytes[row]),
            "cleanup_policy": topics.policy[row],
            "retention_seconds": None if not math.isfinite(topics.retention[row]) else float(topics.retention[row]),
            "kept_for_ever": bool(topics.retention[row] == math.inf),
            "owner": topics.owner[row],
            "partitions": int(topics.partitions[row]),
            "partitions_not_read": int(topics.unread[row]),
            "partitions_searched": int(topics.searched[row]),
            "records": int(topics.records[row]),
            "copy_of": topics.copy_of[row],
        }
        yield record | {"evidence": "; ".join(filter(None, _clauses(topics, row, record, now)))}


def _explain_unknown(topics: AuditTopics, row: int) -> str:
    """Return in a few words why a topic cannot be judged."""
    if topics.unread[row]:
        reason = reason_of_code(int(topics.reason[row]))
        return "interrupted before it was read" if reason is None else _REASON_WORDS.get(reason, str(reason))
    if doubt := _DOUBT_WORDS.get(DOUBTS[topics.doubt[row]]):
        return doubt
    return "too few records" if topics.looked_back[row] else "interrupted before its past was looked at"


def summarise(records: Sequence[Record]) -> str:
    """Return the summary line, as ``12 of 32 topics are abandoned (4.2 GiB); 1 died this week; ...``."""
    counted = Counter(record["what"] for record in records)
    abandoned = [record for record in records if record["what"] == Liveness.ABANDONED]
    verb = "is" if 1 in (len(abandoned), len(records)) else "are"
    clauses = [f"{len(abandoned):,} of {plural(len(records), 'topic')} {verb} abandoned{_bytes(abandoned)}"]
    if stateful := sum(not _STATEFUL.isdisjoint(record["roles"]) for record in abandoned):
        clauses.append(f"{stateful:,} of these may hold state (compacted, kept for ever or internal)")
    if errors := sum("error topic" in record["roles"] for record in abandoned):
        clauses.append(f"{plural(errors, 'error topic')} among them")
    if died := counted[Liveness.DIED]:
        clauses.append(f"{died:,} died this week")
    if overdue := counted[Liveness.OVERDUE]:
        clauses.append(f"{overdue:,} {'is' if overdue == 1 else 'are'} overdue")
    if unknown := counted[Liveness.UNKNOWN]:
        causes = Counter(record["why_unknown"] for record in records if record["why_unknown"]).most_common()
        why = ", ".join(cause if len(causes) == 1 else f"{cause} ({number:,})" for cause, number in causes)
        clauses.append(f"{unknown:,} cannot be judged: {why}")
    return "; ".join(clauses)


def _bytes(records: Sequence[Record]) -> str:
    known = [record["bytes"] for record in records if record["bytes"] is not None]
    least = "" if len(known) == len(records) else "at least "
    return f" ({least}{size(sum(known))})" if known else ""


def _clauses(topics: AuditTopics, row: int, record: Record, now: float) -> Iterator[str | None]:
    liveness, last, unread, partitions = (
        record[name] for name in ("what", "last_record", "partitions_not_read", "partitions")
    )
    if liveness == Liveness.WRITTEN:
        if topics.advanced[row] and (last is None or now - last > LIVE_SECONDS):
            dated = "records without a plausible time" if last is None else f"records dated {moment(last)}"
            yield f"written while the audit ran, with {dated}: mirrored or back-dated"
        else:
            yield f"last record {ago(now - last)}"
    elif liveness == Liveness.UNKNOWN:
        some = f"{unread:,} of {plural(partitions, 'partition')} not read: " if 0 < unread < partitions else ""
        yield some + record["why_unknown"]
        if last is not None:
            yield f"newest record that is known: {moment(last)}"
        if not unread and topics.looked_back[row]:
            yield topics.evidence[row]
    elif liveness == Liveness.EMPTY:
        yield "empty: retention or somebody deleted its records; when it was last written is not known"
    elif liveness == Liveness.NEVER_WRITTEN:
        yield "never written"
    else:
        yield topics.evidence[row]
        if (searched := record["partitions_searched"]) < partitions:
            shows = "shows" if searched == 1 else "show"
            yield f"its past as {searched:,} of {plural(partitions, 'partition')} {shows} it"
    if liveness in (Liveness.DIED, Liveness.OVERDUE, Liveness.ABANDONED, Liveness.SILENT):
        yield f"{plural(record['records'], 'record')} held"
    if topics.by_time[row]:
        yield "its newest record was found by look-ups by time: its broker names none (MAX_TIMESTAMP, Kafka 3.0)"
    if record["copy_of"] is not None:
        yield f"a copy that MirrorMaker makes from {record['copy_of']}: its age is that of the original's records"
    yield from map(_ROLE_WORDS.__getitem__, record["roles"])
    yield _word_readers(record["readers"], record["committed"])


def _word_readers(readers: Sequence[str] | None, committed: Sequence[str]) -> str | None:
    if readers is None:
        return None
    if readers:
        return f"{plural(len(readers), 'consumer group')} {'reads' if len(readers) == 1 else 'read'} it now"
    if committed:
        return f"no consumer group reads it now; {plural(len(committed), 'group')} committed in it"
    return "no consumer group reads it"
