"""Explains the verdict of a topic or partition, for a person at a terminal."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from exporter.commands.explained_subject import ExplainedSubject, ReplicaNow
from exporter.commands.group_lines import group_lines, labelled
from exporter.commands.profile_drawing import Paint, drawn_profile, drawn_weeks, slots
from exporter.domain import (
    Expectation,
    TopicConfig,
    TopicOverride,
    Verdict,
)
from exporter.domain.expectations.silence_rules import ExpectationSet, JudgedSilences, retired_after
from exporter.domain.formatting import ago, duration, moment, plural, size
from exporter.domain.groups.readers import groups_in, who_reads
from exporter.domain.judging.assessment import Judgement
from exporter.domain.judging.detection import judge
from exporter.domain.judging.evidence_now import JudgedSubject, evidence_now, falling
from exporter.domain.judging.subject_facts import SubjectFacts
from exporter.domain.learning.traffic_clock import HOUR, HOURS
from exporter.domain.polls.activity import PRESERVED_PAST_SECONDS
from exporter.domain.polls.silence import Silence
from exporter.domain.scoring.calibration import of_weeks
from exporter.domain.verdicts import SCHEDULE, TRAFFIC_CLOCK

_COLOURS = {
    Verdict.LIVE: "green",
    Verdict.QUIET: "green",
    Verdict.SUSPECT: "yellow",
    Verdict.LATE: "yellow",
    Verdict.DEAD: "red",
}
_BY_THRESHOLD = (TRAFFIC_CLOCK, SCHEDULE)


def plain(text: str, _colour: str) -> str:
    """Return text without colours."""
    return text


def record(case: ExplainedSubject) -> dict[str, Any]:
    """Return the explanation as JSON has it, as the API of the exporter returns it."""
    sweep = case.sweep
    return SubjectFacts(
        cluster=case.cluster,
        topic=case.topic,
        partition=case.partition,
        now=case.now,
        judgement=case.judgement,
        seen=case.seen,
        proved_until=None if case.silence is None else case.silence.until,
        newest=case.newest,
        reading=case.reading,
        expectation=case.expectation,
        published_at=case.published_at,
        in_force=case.expectation is not None and not case.stale,
        override=case.override,
        owner=case.owner,
        config=case.config,
        groups=None if sweep is None or sweep.blank else groups_in(sweep, case.topic, case.partition),
        all_groups=sweep is not None and bool(who_reads(sweep, [case.topic]).known[0]),
        others={} if sweep is None else sweep.others or {},
        partitions=case.siblings,
        weekly_scores=case.further.get("weekly_scores"),
        incident=case.incident,
        past_alarms=case.past_alarms,
    ).record()


def explain(case: ExplainedSubject, paint: Paint = plain) -> Iterator[str]:
    """Yield the lines of the explanation."""
    in_force = None if case.stale else case.expectation
    verdict = case.judgement
    subject = case.topic if case.partition is None else f"{case.topic}, partition {case.partition}"
    yield subject if case.cluster is None else f"{subject}, cluster {case.cluster}"
    yield ""
    yield from _verdict(case, verdict, paint)
    if case.incident is not None:
        drop = falling(case.incident, case.expectation)
        yield labelled("held", f"{case.incident}" if drop is None else drop.describe(verdict.expected_by, case.now))
    elif case.may_be_held is not None:
        yield labelled("held", f"perhaps: {case.may_be_held}")
    yield ""
    yield from _present(case, verdict)
    yield from _of_fleet(case)
    yield from _inspected(case)
    if case.sweep is not None:
        yield from group_lines(case.sweep, case.topic, case.partition)
    for copy in case.copies:
        yield labelled("replica of", f"{copy.source}: {_replica(copy, case.silence)}")
    row = case.expectation
    if row is not None and row.profile is not None and len(row.profile) == HOURS:
        yield ""
        yield from drawn_profile(row, paint)
    if row is not None and row.log_mean is not None and case.further.get("weekly_scores"):
        yield ""
        yield from drawn_weeks(row, case.further["weekly_scores"], paint)
    if case.siblings:
        yield ""
        yield from _siblings(case)
    yield ""
    yield from _changes(case, in_force, verdict)


def _verdict(case: ExplainedSubject, verdict: Judgement, paint: Paint) -> Iterator[str]:
    row = case.expectation
    yield labelled("verdict", paint(verdict.verdict, _COLOURS.get(verdict.verdict, "")))
    if case.owner is not None:
        yield labelled("owner", case.owner)
    if case.override is not None:
        yield labelled("by", f"the configuration (overrides), for {case.override.topics}: {_override(case.override)}")
    if row is None:
        yield labelled("published", "not this topic" if case.published_at is not None else "nothing yet")
        yield labelled("next", case.advice)
        return
    age = case.now - row.as_of
    yield labelled("published", f"{row.verdict}, as of {moment(row.as_of)}, {ago(age)}")
    judged = JudgedSubject(verdict, None if case.stale else row, case.incident, case.seen)
    yield labelled("evidence", evidence_now(judged, case.now))
    if case.stale:
        why = "older than expectations.max_age" if row.as_of <= case.now else "from the future (wrong clock)"
        yield labelled("stale", f"{why}, so it is not used: run `topic-liveness rollup`")


def _present(case: ExplainedSubject, verdict: Judgement) -> Iterator[str]:
    row, silence = case.expectation, case.silence
    if case.poll_problem is not None:
        yield labelled("broker", f"not asked: {case.poll_problem}; what follows is as of the rollup")
    elif case.reading is not None:
        end = "unknown" if case.reading.latest is None else str(case.reading.latest)
        since = ""
        if row is not None and row.end_offset is not None and case.reading.latest is not None:
            moved = case.reading.latest - row.end_offset
            since = (
                ", as published" if moved == 0 else f", {abs(moved)} {'past' if moved > 0 else 'below'} the published"
            )
        why = "" if case.reading.reason is None else f": {case.reading.reason}"
        why += f" at broker {case.reading.leader}" if why and case.reading.leader is not None else ""
        yield labelled("broker", f"{case.reading.state}{why}; end offset {end}{since}")
    if silence is None:
        yield from _newest(case)
        yield labelled("silence", "unknown: no good reading and no published advance")
        return
    length = silence.until - silence.since
    if silence.known:
        yield labelled("last advance", moment(silence.since))
        yield from _newest(case)
        yield labelled("silence", f"{duration(length)}, proved until {moment(silence.until)}")
    else:
        yield labelled("last advance", _unseen(silence))
        yield from _newest(case)
        yield labelled("silence", f"counted from {moment(silence.since)} on, the first poll")
    if row is None or case.override is not None:
        return
    if row.schedule is not None:
        yield labelled("schedule", str(row.schedule))
    elif verdict.score is not None and row.profile is not None:
        silences = JudgedSilences(np.zeros(1, np.intp), np.array([silence.since]), np.array([silence.until]))
        missed = float(ExpectationSet([row]).foresee(silences)[2][0])
        paused = row.pause_slots or 0.0
        known = f"; its past holds pauses of up to {paused:.1f}" if paused >= 1.0 else ""
        yield labelled("missed", f"{missed:.1f} {slots(row)} that its profile expects in that silence{known}")
    if verdict.score is not None:
        yield labelled(
            "score", f"{verdict.score:.1f}; suspect past {row.suspect_score:.1f}, dead past {row.dead_score:.1f}"
        )


def _unseen(silence: Silence) -> str:
    if not silence.advanced:
        return "unknown: no advance was ever seen"
    if silence.not_before is None:
        return f"unknown: before {moment(silence.since)}, the first poll"
    return f"between {moment(silence.not_before)} and {moment(silence.since)}, while nobody looked"


def _of_fleet(case: ExplainedSubject) -> Iterator[str]:
    """Yield what the fleet's threshold promises and gave; nothing of a subject that it does not judge."""
    row, alarms = None if case.stale else case.expectation, case.past_alarms
    if row is None or row.rule not in _BY_THRESHOLD or case.override is not None or alarms is None:
        return
    if alarms.promised is not None:
        yield labelled("promised", f"false alarms: {of_weeks(alarms.promised, alarms.topics)}")
    dead = "the threshold" if row.dead_score is None else f"a score of {row.dead_score:.1f}"
    if alarms.alarms_a_week is not None:
        yield labelled("alarms", f"about {alarms.alarms_a_week:.2g} a week in the whole fleet past {dead}")
    if alarms.outages and alarms.outages_alarmed is not None:
        seen = "" if alarms.outages_seen is None else f"; {alarms.outages_seen:.0%} would be past {dead}"
        alarmed = f"{alarms.outages_alarmed:,} of {plural(alarms.outages, 'repaired outage')} in the whole fleet"
        yield labelled("outages", f"{alarmed} {'was' if alarms.outages == 1 else 'were'} called dead{seen}")


def _inspected(case: ExplainedSubject) -> Iterator[str]:
    """Yield producers and size, as far as brokers returned them."""
    if case.inspected is None:
        return
    found = case.inspected
    if found.producers is not None:
        details = [f"{found.producers} idempotent, remembered by brokers"]
        if found.last_write is not None:
            details.append(f"last batch {moment(found.last_write)}")
        if found.open_transactions:
            details.append(f"{found.open_transactions} in a transaction")
        yield labelled("producers", ", ".join(details))
    if found.log_bytes is not None:
        on_disk = "" if found.disk_bytes is None else f", {size(found.disk_bytes)} with all replicas"
        yield labelled("size", f"{size(found.log_bytes)} in one copy{on_disk}")
    if case.not_inspected:
        yield labelled("inspection", case.not_inspected)


def _newest(case: ExplainedSubject) -> Iterator[str]:
    """Yield the timestamp of the newest record, which clock set it, and how far it can be trusted."""
    if case.newest is None:
        return
    config, silence = case.config, case.silence
    details = [moment(case.newest)]
    if config is not None and config.timestamp_type is not None:
        details.append(f"by {_clock_of(config)}")
    if silence is not None and case.newest > silence.until + HOUR:
        details.append("in the future, so it proves nothing")
    elif silence is not None and silence.known and case.newest < silence.since - HOUR - PRESERVED_PAST_SECONDS:
        details.append("well before the last advance: mirrored or back-dated")
    yield labelled("newest record", ", ".join(details))


def _clock_of(config: TopicConfig) -> str:
    """Return which clock sets a topic's timestamps, and how far they may be from the broker's clock."""
    if config.timestamp_type == "LogAppendTime":
        return "the broker's clock (LogAppendTime)"
    bounds = (config.timestamp_before_max_seconds, "before"), (config.timestamp_after_max_seconds, "after")
    limits = [f"{duration(limit)} {side}" for limit, side in bounds if limit is not None and math.isfinite(limit)]
    allowed = f"; at most {' and '.join(limits)} the broker's" if limits else ""
    return f"its producer's clock ({config.timestamp_type}{allowed})"


def _replica(copy: ReplicaNow, silence: Silence | None) -> str:
    """Return which records a replica lacks, and whether replication has stopped."""
    if copy.problem:
        return f"not compared: {copy.problem}"
    missing = sum(reading.at_least or 0 for reading in copy.readings)
    lag = max((reading.lag_seconds for reading in copy.readings if reading.lag_seconds is not None), default=None)
    reasons = Counter(str(reading.reason) for reading in copy.readings if reading.reason is not None)
    facts = []
    if missing:
        since = "" if lag is None else f", the oldest {duration(lag)} old"
        facts.append(f"at least {missing:,} records are missing{since}")
        if silence is not None and silence.known and silence.until - silence.since >= copy.stopped_after:
            silent = duration(silence.until - silence.since)
            facts.insert(0, f"source advanced, replica silent for {silent}: replication stopped")
    elif reasons.total() < len(copy.readings):
        facts.append("nothing is missing")
    facts += [f"{plural(count, 'partition')} not comparable ({why})" for why, count in reasons.items()]
    return "; ".join(facts)


def _siblings(case: ExplainedSubject) -> Iterator[str]:
    counts = Counter(one.judgement.verdict for one in case.siblings.values())
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
    yield labelled("partitions", verdicts)
    for verdict in (Verdict.DEAD, Verdict.SUSPECT, Verdict.HELD):
        numbers = sorted(number for number, one in case.siblings.items() if one.judgement.verdict is verdict)
        if numbers:
            more = ", ..." if len(numbers) > 10 else ""
            yield labelled(f"  {verdict}", ", ".join(map(str, numbers[:10])) + more)
    for incident in dict.fromkeys(one.incident for one in case.siblings.values()):
        # That of the topic itself was named above.
        if incident is not None and incident != case.incident:
            yield labelled("  held by", str(incident))


def _changes(case: ExplainedSubject, row: Expectation | None, verdict: Judgement) -> Iterator[str]:
    yield "what would change the verdict"
    if case.override is not None:
        yield "  - the configuration: it overrides all that was learned"
    else:
        yield "  - one record: live at the next poll"
    if case.silence is not None and case.silence.known and verdict.expected_by is not None:
        dead, since = verdict.expected_by, case.silence.since
        retired = since + float(retired_after(dead - since))
        moments = {"dead": dead}
        if case.override is None and row is not None:
            suspect = judge(case.silence, _suspect_as_dead(row), case.now).expected_by
            moments = {"suspect": retired if suspect is None else suspect, **moments}
        for name, at in moments.items():
            if at < retired:
                yield from _change(at, name, case)
        yield from _change(retired, "retired", case)
    elif (
        row is not None
        and row.profile is None
        and row.schedule is None
        and row.max_silence_seconds is None
        and case.override is None
    ):
        yield "  - more history: the evidence says what is missing"
    if (drop := falling(case.incident, case.expectation)) is not None:
        until = moment(drop.until)
        yield f"  - {until}, or a rollup that knows the fleet is back: judged without the drop"
    elif case.incident is not None:
        yield "  - the incident's end, or a day and two of its own busiest days past its usual silence: judged alone"
    elif case.held_when_published:
        yield "  - a look at the brokers: what held it as of the rollup may be over"
    elif verdict.verdict is Verdict.HELD:
        yield "  - polls that prove the silence: too many polls fail now"
    if case.override is None:
        if verdict.expected_by is not None and verdict.verdict is not Verdict.RETIRED:
            yield "  - many other topics falling silent with it: held, as one incident"
        yield f"  - an override: `overrides: [{{topics: {case.topic}, max_silence: 2h}}]` or muted_until, retired"


def _change(at: float, verdict: str, case: ExplainedSubject) -> Iterator[str]:
    assert case.silence is not None
    if at > case.silence.until:
        yield f"  - silence past {moment(at)}: {verdict}"
    else:
        yield f"  - ({verdict} since {moment(at)})"


def _suspect_as_dead(row: Expectation) -> Expectation:
    return replace(row, dead_score=row.suspect_score, max_silence_seconds=row.suspect_silence_seconds)


def _override(override: TopicOverride) -> str:
    if override.max_silence_seconds is not None:
        return f"dead past {duration(override.max_silence_seconds)}"
    return "retired" if override.muted_until is None else f"muted until {moment(override.muted_until)}"
