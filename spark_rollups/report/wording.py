"""Words findings of the report in plain English, and escapes texts that others wrote."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo

from exporter.domain import formatting
from exporter.domain.formatting import duration, duration_at_most, plural
from exporter.domain.judging.evidence import describe_baseline, find_baseline_end
from exporter.domain.judging.readers_and_copies import SILENT, readers_line
from exporter.domain.polls.readings import State
from exporter.domain.scoring.calibration import describe_rate, format_rate
from exporter.domain.verdicts import OVERRIDE, SCHEDULE, Verdict
from spark_rollups.report.model import Finding
from spark_rollups.report.rules import Promise
from spark_rollups.report.topic_facts import Relations, Storage

_HOUR = 3600.0
_NOT_COME = (*SILENT, Verdict.LATE)
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
"""Control characters, and those that turn the direction of the text around them."""
_SPACES = re.compile(r"\s+")
_MARKDOWN = re.compile(r"[\\`*_{}\[\]<>#|~&$!]|(?<=:)/(?=/)|(?<=www)\.|@")
_NAMED_READERS = 5
_LEGAL_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")


def moment(when: datetime | None, zone: tzinfo = UTC) -> str:
    """Return a moment to the minute, with the day of its week: ``Tue 2026-03-03 02:14 UTC``."""
    return formatting.moment(None if when is None else when.timestamp(), zone=zone)


def day(when: datetime, zone: tzinfo = UTC) -> str:
    """Return the date of a moment: ``Tue 2026-03-03``."""
    return moment(when, zone)[:14]


def share(part: float | None) -> str:
    """Return a share (0..1) in per cent, rounded down so that 100 % means all."""
    return "unknown" if part is None else f"{math.floor(part * 1000 + 1e-9) / 10:g} %"


def ranges(numbers: Sequence[int], limit: int = 12) -> str:
    """Return ascending numbers as runs, ``0-11, 14``; past ``limit`` runs the rest is only counted."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    text = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs[:limit])
    left = sum(b - a + 1 for a, b in runs[limit:])
    return f"{text} and {left:,} more" if left else text


def visible(text: str) -> str:
    """Return ``text`` on one line, with what could hide or reorder it made visible."""
    return _UNPRINTABLE.sub("\ufffd", _SPACES.sub(" ", text))


class Markdown(str):
    """Text that is Markdown already and must not be escaped again."""

    __slots__ = ()


def markdown(text: object) -> Markdown:
    """Escape a text so that CommonMark and GFM, also inside a table, show it as it is."""
    if isinstance(text, Markdown):
        return text
    return Markdown(_MARKDOWN.sub(lambda match: "\\" + match.group(), visible(str(text))))


def markdown_name(name: str) -> Markdown:
    """Set a name as code where it is a legal topic name, else as escaped text."""
    return Markdown(f"`{name}`") if _LEGAL_NAME.fullmatch(name) else markdown(name)


def delete_command(topic: str) -> str | None:
    """Return the command that deletes this topic and no other; None for a name that Kafka does not allow.

    ``kafka-topics`` takes the name for a regular expression, in which a dot is any character.
    """
    if not _LEGAL_NAME.fullmatch(topic):
        return None
    name = topic.replace(".", r"\.")
    return f"kafka-topics --bootstrap-server \"$BOOTSTRAP\" --delete --topic '{name}'"


def in_plain_words(finding: Finding) -> str:
    """Return the reasons for a verdict, for readers who know nothing of its rule."""
    unread = ""
    if finding.state == State.UNREADABLE:
        unread = f"The last poll could not read it ({finding.reason or 'no reason given'}). "
    if finding.last_advance is None:
        return " ".join(
            part for part in (f"{unread}No record was ever seen being written.", _configured(finding)) if part
        )
    if finding.silence_seconds is None:
        return f"{unread}How long it is silent is not known."
    sentence = f"{unread}Nothing was written for {duration(finding.silence_seconds)}."
    if finding.revival is not None and finding.verdict not in SILENT:
        return f"It was dead, and is written again, last {formatting.ago(finding.silence_seconds)}."
    if finding.rule == OVERRIDE:
        return f"{sentence} {_configured(finding)}"
    if finding.rule == SCHEDULE:
        return f"{sentence} A run that its schedule has due did not come." if finding.verdict in _NOT_COME else sentence
    return " ".join(part for part in (sentence, _before(finding, finding.last_advance), _missed(finding)) if part)


def _configured(finding: Finding) -> str:
    """Return the override of a finding in words; nothing where it has none."""
    if finding.rule != OVERRIDE:
        return ""
    limit = finding.max_silence_seconds
    return f"The configuration {'decides its verdict' if limit is None else f'allows {duration(limit)}'}."


def _before(finding: Finding, last_advance: datetime) -> str:
    """Return its longest silence before this one; nothing where that is unknown."""
    largest, since = finding.largest_silence_seconds, finding.history_start
    if largest is None or since is None or find_baseline_end(last_advance.timestamp()) <= since.timestamp():
        return ""
    span, observed = describe_baseline(since.timestamp(), last_advance.timestamp(), finding.observed_seconds)
    before = f"In the {span}{observed} it was never silent"
    if largest < finding.slot_seconds:
        return f"{before} for {'a whole hour' if finding.slot_seconds == _HOUR else duration(finding.slot_seconds)}."
    return f"{before} for longer than {duration_at_most(largest)}."


def _missed(finding: Finding) -> str:
    """Return what it missed in this silence, where that is more than ever before."""
    missed, most = finding.missed_slots, finding.largest_missed
    if missed is None or most is None or missed <= max(most, 1.0):
        return ""
    slots = "hours" if finding.slot_seconds == _HOUR else f"slots of {duration(finding.slot_seconds)}"
    usually = f"This time it missed {_number(missed)} {slots} in which it is usually written"
    return f"{usually}, before at most {_number(most)}."


def readers(relations: Relations) -> str:
    """Return who reads a topic: how many consumer groups, how many only committed in it, and names of the first."""
    of = relations.readership
    if of is None:
        return "readers not known"
    found = readers_line(of, silent=True)
    if not relations.readers:
        return found
    return f"{found}{'; all groups' if sum(map(bool, of)) > 1 else ''}: {reader_names(relations)}"


def storage(of: Storage) -> str:
    """Return how a topic keeps its records."""
    retention = duration(of.retention_seconds) if of.retention_seconds is not None else "not known"
    policy = f"policy {'not known' if of.cleanup_policy is None else visible(of.cleanup_policy)}"
    return f"{policy}, retention {'endless' if of.for_ever else retention}"


def remains(of: Storage) -> str:
    """Return how many offsets a topic still holds; fewer records where it is compacted or has transactions."""
    return "not known" if of.records is None else plural(of.records, "record")


def reader_names(relations: Relations) -> str:
    """Return the names of a topic's first consumer groups, and the number of the others."""
    names = [visible(name) for name in (relations.readers or ())[:_NAMED_READERS]]
    left = (relations.consumer_groups or 0) - len(names)
    return ", ".join(names) + (f" and {left:,} more" if names and left > 0 else "")


def figures(finding: Finding, zone: tzinfo = UTC) -> list[tuple[str, str, str]]:
    """Return the exact numbers of the rule, each with its name and in words what it is."""
    found = []
    if finding.missed_slots is not None and finding.rule != SCHEDULE:
        slots = "hours" if finding.slot_seconds == _HOUR else f"slots of {duration(finding.slot_seconds)}"
        before = "" if finding.largest_missed is None else f", before at most {_number(finding.largest_missed)}"
        found.append(
            (
                f"Missed active {slots}",
                f"{_number(finding.missed_slots)}{before}",
                "How many it usually is active in, of those that passed in silence.",
            )
        )
    if finding.silence_score is not None and finding.dead_score is not None:
        limits = f"dead past {_number(finding.dead_score)}"
        if finding.suspect_score is not None:
            limits = f"suspect past {_number(finding.suspect_score)}, {limits}"
        found.append(
            (
                "Silence score",
                f"{_number(finding.silence_score)} ({limits})",
                "How unlikely it is that no run came for so long, by its schedule."
                if finding.rule == SCHEDULE
                else "How far this silence lies above the largest of each earlier week, in units of how much those "
                "differ.",
            )
        )
    if finding.max_silence_seconds is not None:
        found.append(("Limit", duration(finding.max_silence_seconds), "A silence longer than this counts as dead."))
    if finding.observed_seconds is not None and finding.history_start is not None:
        span = f"{duration(finding.observed_seconds)} since {moment(finding.history_start, zone)}"
        found.append(("Observed", span, "How much of its past was polled or backfilled."))
    if finding.observed_until is not None:
        proved = moment(finding.observed_until, zone)
        found.append(("Proved until", proved, "The last look at it that was answered by its broker."))
    return found


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}"


def alarms(given: Promise) -> str:
    """Return how often deaths of one kind were false, and how many real outages were seen."""
    text = "none of its past silences could be judged yet"
    if given.realised is not None and given.realised_low is not None and given.realised_high is not None:
        text = (
            f"{plural(given.false_alarms, 'false alarm')} in "
            f"{given.topic_weeks:,} topic-weeks, {format_rate(given.realised)} per 1,000 "
            f"({format_rate(given.realised_low)} to {format_rate(given.realised_high)} with 95 % confidence)"
        )
    if given.promised is not None:
        text += f"; promised are at most {describe_rate(given.promised, given.topics)}"
    if given.outages and given.outages_alarmed is not None:
        text += f"; {given.outages_alarmed:,} of {given.outages:,} repaired outages were called dead"
    if given.alarms_a_week is not None:
        text += f"; past today's threshold expect about {given.alarms_a_week:.2g} alarms a week, false or in an outage"
    if given.outages_seen is not None:
        text += f"; {given.outages_seen:.0%} of the past outages would have passed it"
    return f"{given.kind.capitalize()}s: {text}."


VERDICT_MEANINGS = {
    Verdict.LIVE: "written lately",
    Verdict.QUIET: "silent, as is usual for it",
    Verdict.LATE: "its run did not come, by its own schedule",
    Verdict.SUSPECT: "silent for longer than is usual at these hours",
    Verdict.DEAD: "silent past its limit",
    Verdict.RETIRED: "dead for weeks, no longer alarmed",
    Verdict.HELD: "no verdict now: silence not proved, or many fell silent together",
    Verdict.LEARNING: "too new to judge, or without a record",
    Verdict.MUTED: "left out by configuration",
}
