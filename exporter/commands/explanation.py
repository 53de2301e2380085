"""Explains the verdict of a topic or partition, for a person at a terminal, from the record that the API returns."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from exporter.domain.formatting import ago, duration, moment, plural, size
from exporter.domain.groups.sweep import GroupRole
from exporter.domain.judging.evidence import word_override
from exporter.domain.learning.traffic_clock import HOUR
from exporter.domain.polls.activity import PRESERVED_PAST_SECONDS
from exporter.domain.verdicts import BY_SCORE, Verdict

Record = Mapping[str, Any]
_NAMED = 5
"""So many groups are named in each line of them."""


def explain(record: Record, source: str, now: float) -> Iterator[str]:
    """Yield the lines of the explanation as of ``now``, in Unix seconds; ``source`` is who gave the record."""
    topic, partition, cluster = record["topic"], record["partition"], record["cluster"]
    yield f"{topic if partition is None else f'{topic}, partition {partition}'}, cluster {cluster}"
    yield ""
    yield from _verdict(record, now)
    yield ""
    yield _labelled("exporter", source)
    yield from _present(record)
    yield from _groups(record)
    for copy in record["replica_of"]:
        yield _labelled("replica of", f"{copy['cluster']}/{copy['topic']}: {_replica(copy)}")
    if record["partitions"]:
        yield ""
        yield from _partitions(record["partitions"])


def _labelled(label: str, text: str) -> str:
    return f"{label:<13} {text}"


def _verdict(record: Record, now: float) -> Iterator[str]:
    verdict, expectation, override = record["verdict"], record["expectation"], record["override"]
    yield _labelled("verdict", verdict)
    yield _labelled("evidence", record["evidence"])
    if record["owner"] is not None:
        yield _labelled("owner", record["owner"])
    if override is not None:
        rule = word_override(override["max_silence_seconds"], override["muted_until"])
        decided = f"the configuration (overrides), for {override['topics']}: {rule}"
        yield _labelled("by", decided)
    if expectation is None:
        how = "an exporter reads a rollup within a minute; else run `topic-liveness rollup`"
        yield _labelled("published", f"nothing of it that is in force here: {how}")
        return
    as_of = expectation["as_of"]
    yield _labelled("published", f"{expectation['verdict']}, as of {moment(as_of)}, {ago(now - as_of)}")
    if not expectation["in_force"]:
        why = "older than expectations.max_age" if as_of <= now else "from the future (wrong clock)"
        yield _labelled("stale", f"{why}, so an exporter does not use it: run `topic-liveness rollup`")


def _present(record: Record) -> Iterator[str]:
    """Yield what is known of the silence, and of the newest record."""
    last, reading, expectation = record["last_advance"], record["reading"], record["expectation"]
    if reading is not None:
        why = "" if reading["reason"] is None else f": {reading['reason']}"
        why += f" at broker {reading['leader']}" if why and reading["leader"] is not None else ""
        end = "unknown" if reading["latest"] is None else reading["latest"]
        yield _labelled("broker", f"{reading['state']}{why}; end offset {end}")
    yield _labelled("last advance", "unknown" if last is None else moment(last))
    if record["last_record"] is not None:
        yield _labelled("newest record", _newest(record))
    if last is not None and (until := record["observed_until"]) is not None:
        yield _labelled("silence", f"{duration(max(0.0, until - last))}, proved until {moment(until)}")
    if expectation is not None and record["override"] is None:
        if expectation["schedule"] is not None:
            yield _labelled("schedule", expectation["schedule"])
        elif record["missed_slots"] is not None and expectation["profile"] is not None:
            paused = expectation["pause_slots"] or 0.0
            known = f"; its past holds pauses of up to {paused:.1f}" if paused >= 1.0 else ""
            seconds = expectation["slot_seconds"]
            slots = "active hours" if seconds == HOUR else f"active slots of {duration(seconds)}"
            missed = f"{record['missed_slots']:.1f} {slots} that its profile expects in that silence{known}"
            yield _labelled("missed", missed)
        by_score = expectation["rule"] in BY_SCORE and expectation["dead_score"] is not None
        if by_score and record["silence_score"] is not None:
            limits = f"suspect past {expectation['suspect_score']:.1f}, dead past {expectation['dead_score']:.1f}"
            yield _labelled("score", f"{record['silence_score']:.1f}; {limits}")
    if record["log_bytes"] is not None:
        disk = record["disk_bytes"]
        everywhere = "" if disk is None else f", {size(disk)} with all replicas"
        yield _labelled("size", f"{size(record['log_bytes'])} in one copy{everywhere}")


def _newest(record: Record) -> str:
    """Return the timestamp of the newest record, which clock set it, and how far it can be trusted."""
    newest, last, until, config = (record[name] for name in ("last_record", "last_advance", "observed_until", "config"))
    details = [moment(newest)]
    if config is not None and config["timestamp_type"] is not None:
        whose = "the broker's" if config["timestamp_type"] == "LogAppendTime" else "its producer's"
        details.append(f"by {whose} clock ({config['timestamp_type']})")
    if until is not None and newest > until + HOUR:
        details.append("in the future, so it proves nothing")
    elif last is not None and newest < last - HOUR - PRESERVED_PAST_SECONDS:
        details.append("well before the last advance: mirrored or back-dated")
    return ", ".join(details)


def _groups(record: Record) -> Iterator[str]:
    """Yield the groups of a topic or partition, those furthest behind first, and whether some may be missing."""
    groups = sorted(record["groups"] or (), key=lambda one: -(one["lag"] or 0))
    of_partition = record["partition"] is not None
    by_role = {role: [_group(one, of_partition) for one in groups if one["role"] == role] for role in GroupRole}
    reading = by_role[GroupRole.ASSIGNED] + by_role[GroupRole.UNKNOWN]
    if record["all_groups_known"] and not reading:
        yield _labelled("read by", "no consumer group")
    yield from _named("read by", plural(len(reading), "consumer group"), reading)
    left, gone = by_role[GroupRole.COMMITTED], by_role[GroupRole.GONE]
    yield from _named("left by", f"{plural(len(left), 'group')} with members elsewhere", left)
    # Any of these may have committed once, and never again.
    yield from _named("committed", f"{plural(len(gone), 'group')} without a member now", gone)
    if (unknown := record["groups_unknown"]) is not None:
        label = "" if groups else "read by"
        others = [make_printable(name) for name in record["other_groups"]]
        yield from _named(label, unknown, others) if others else [_labelled(label, unknown)]


def _group(group: Record, of_partition: bool) -> str:
    details = []
    if group["role"] != GroupRole.GONE:
        details.append("members unknown" if group["members"] is None else plural(group["members"], "member"))
    if group["role"] == GroupRole.UNKNOWN:
        details.append("assignment unknown")
    if group["past_end"]:
        details.append(f"committed {group['past_end']:,} past the end of the log, and skips records up to there")
    elif group["committed"]:
        details.append("lag unknown" if group["lag"] is None else f"lag {group['lag']:,}")
    elif of_partition:
        details.append("nothing committed here")
    if group["lag_seconds"]:
        details.append(f"the oldest {duration(group['lag_seconds'])} old")
    return f"{make_printable(group['group'])} ({', '.join(details)})" if details else make_printable(group["group"])


def make_printable(name: str) -> str:
    """Return a text with the name of a group, for which a client may choose any characters."""
    return name if name.isprintable() else ascii(name)


def _named(label: str, count: str, groups: Sequence[str]) -> Iterator[str]:
    """Yield the first groups of a list; nothing where it is empty."""
    for place, each in enumerate(groups[:_NAMED]):
        yield _labelled("" if place else label, each if place else f"{count}: {each}")
    if len(groups) > _NAMED:
        yield _labelled("", f"and {len(groups) - _NAMED} more")


def _replica(copy: Record) -> str:
    """Return the states of a replica's partitions, which records it lacks, and what could not be compared."""
    facts = [", ".join(f"{count} {state}" for state, count in sorted(copy["states"].items()))]
    if copy["lag_seconds"]:
        facts.append(f"{duration(copy['lag_seconds'])} behind")
    if copy["lag_records"]:
        facts.append(f"{copy['lag_records']:,} records are missing")
    facts += [f"{plural(count, 'partition')} not compared ({why})" for why, count in copy["not_compared"].items()]
    return "; ".join(facts)


def _partitions(partitions: Sequence[Record]) -> Iterator[str]:
    counts = Counter(one["verdict"] for one in partitions)
    yield _labelled("partitions", ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())))
    for verdict in (Verdict.DEAD, Verdict.SUSPECT, Verdict.HELD):
        numbers = sorted(one["partition"] for one in partitions if one["verdict"] == verdict)
        if numbers:
            more = ", ..." if len(numbers) > 10 else ""
            yield _labelled(f"  {verdict}", ", ".join(map(str, numbers[:10])) + more)
            if verdict is Verdict.HELD:
                yield _labelled("", next(one["evidence"] for one in partitions if one["partition"] == numbers[0]))


def explain_changes(record: Record) -> Iterator[str]:
    """Yield what would change a verdict that an exporter gives now."""
    override, verdict = record["override"], record["verdict"]
    yield "what would change the verdict"
    if override is not None:
        yield "  - the configuration: it overrides all that was learned"
    else:
        yield "  - one record: live at the next poll"
    retired = record["retired_from"]
    if retired is not None:
        for name, at in (("suspect", record["suspect_from"]), ("dead", record["expected_by"]), ("retired", retired)):
            if at is None or (at >= retired and name != "retired"):
                continue
            over = at <= (record["observed_until"] or record["as_of"])
            if not over and verdict == name:
                continue  # dead already before the first poll: it was retired at once
            yield f"  - ({name} since {moment(at)})" if over else f"  - silence past {moment(at)}: {name}"
    if record["incident"] is not None:
        yield "  - the end of what holds it, as the evidence says: judged alone"
    if override is None:
        yield f"  - an override: `overrides: [{{topics: {record['topic']}, max_silence: 2h}}]` or muted_until, retired"
