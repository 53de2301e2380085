"""Words what the report lists, and escapes texts that others wrote. The evidence of a verdict comes from its table."""

import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Any

from exporter.domain import formatting
from exporter.domain.formatting import duration, plural
from exporter.domain.judging.evidence import describe_readers
from exporter.domain.scoring.calibration import describe_rate, format_rate
from exporter.domain.verdicts import Verdict
from spark_rollups.report.model import TopicFacts

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


def share(part: float) -> str:
    """Return a share (0..1) in per cent, rounded down so that 100 % means all."""
    return f"{math.floor(part * 1000 + 1e-9) / 10:g} %"


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


def readers(about: TopicFacts) -> str:
    """Return who reads a topic: how many consumer groups, how many only committed in it, and names of the first."""
    of = about.readership
    if of is None:
        return "readers not known"
    found = describe_readers(of, silent=True)
    if not about.readers:
        return found
    names = [visible(name) for name in about.readers[:_NAMED_READERS]]
    more = f" and {left:,} more" if (left := sum(of) - len(names)) else ""
    return f"{found}{'; all groups' if sum(map(bool, of)) > 1 else ''}: {', '.join(names)}{more}"


def storage(of: TopicFacts) -> str:
    """Return how a topic keeps its records."""
    retention = duration(of.retention_seconds) if of.retention_seconds is not None else "not known"
    policy = f"policy {'not known' if of.cleanup_policy is None else visible(of.cleanup_policy)}"
    return f"{policy}, retention {'endless' if of.for_ever else retention}"


def remains(of: TopicFacts) -> str:
    """Return how many offsets a topic still holds; fewer records where it is compacted or has transactions."""
    return "not known" if of.records is None else plural(of.records, "record")


def alarms(row: Mapping[str, Any]) -> str:
    """Return how often deaths of one kind were false, and how many outages were seen, by a row of the calibration."""
    text = "none of its past silences could be judged yet"
    if row["realised"] is not None:
        text = (
            f"{plural(row['false_alarms'], 'false alarm')} in "
            f"{row['judged_topic_weeks']:,} topic-weeks, {format_rate(row['realised'])} per 1,000 "
            f"({format_rate(row['realised_low'])} to {format_rate(row['realised_high'])} with 95 % confidence)"
        )
    if row["promised"] is not None:
        text += f"; promised are at most {describe_rate(row['promised'], row['topics'])}"
    if row["outages"]:
        text += f"; {row['outages_alarmed']:,} of {row['outages']:,} repaired outages were called dead"
    return f"{row['kind'].capitalize()}s: {text}."


VERDICT_MEANINGS = {
    Verdict.LIVE: "written lately",
    Verdict.QUIET: "silent, as is usual for it",
    Verdict.LATE: "its run did not come, by its own schedule",
    Verdict.SUSPECT: "silent for longer than is usual at these hours",
    Verdict.DEAD: "silent past its limit",
    Verdict.RETIRED: "dead, and no longer alarmed",
    Verdict.HELD: "no verdict now: silence not proved, or many fell silent together",
    Verdict.LEARNING: "too new to judge, or without a record",
    Verdict.MUTED: "left out by configuration",
}
