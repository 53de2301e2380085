"""How the report says durations, moments and texts that others wrote."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime

from exporter.domain.calibration import rate
from spark_rollups.report.model import Promise, RuleInForce

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MINUTE, _HOUR, _DAY = 60, 3600, 86400

_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
"""Control characters, and those that turn the direction of the text around them."""
_SPACES = re.compile(r"\s+")
_MARKDOWN = re.compile(r"[\\`*_{}\[\]<>#|~&$!]|(?<=:)/(?=/)|(?<=www)\.|@")
_LEGAL_NAME = re.compile(r"[A-Za-z0-9._-]+")
_BLOCKS = "▁▂▃▄▅▆▇█"
_OF_ALL = (
    (
        "Nothing is promised with fewer than 10 active slots or fewer than two whole weeks of history: such a topic is "
        "learning."
    ),
    "Silence is judged by advances of the end offset and proved only where the exporter polled or backfilled.",
    (
        "Backfilled hours are those of record timestamps: exact where brokers set them (LogAppendTime); with "
        "CreateTime as true as the producers' clocks, and a mirrored topic shows the hours of its source."
    ),
)


def duration(seconds: float | None) -> str:
    """Say a duration with its two largest units, rounded down: ``9 h 12 m``."""
    if seconds is None:
        return "unknown"
    whole = max(0, math.floor(seconds))
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} m"
    if whole < _DAY:
        return _two(whole // _HOUR, "h", whole % _HOUR // _MINUTE, "m")
    return _two(whole // _DAY, "d", whole % _DAY // _HOUR, "h")


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large} {large_unit} {small} {small_unit}" if small else f"{large} {large_unit}"


def moment(when: datetime | None) -> str:
    """Say a moment to the minute: ``Tue 2026-03-03 02:14 UTC``, in any locale."""
    if when is None:
        return "unknown"
    utc = when.astimezone(UTC)
    return f"{_DAYS[utc.weekday()]} {utc:%Y-%m-%d %H:%M} UTC"


def iso(when: datetime) -> str:
    """Say a moment for machines: ISO 8601 with ``Z``, microseconds only where there are some."""
    return when.astimezone(UTC).isoformat().replace("+00:00", "Z")


def size(count: int) -> str:
    """Bytes as people read them: ``3.4 GiB``."""
    for unit, length in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= length:
            return f"{count / length:,.1f} {unit}"
    return f"{count} B"


def share(part: float | None) -> str:
    """Say a share (0..1) in per cent, rounded down so that 100 % means all."""
    return "unknown" if part is None else f"{math.floor(part * 1000 + 1e-9) / 10:g} %"


def plural(count: int, noun: str) -> str:
    """Say a count with its noun: ``1 topic``, ``2,000 topics``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def ranges(numbers: Sequence[int], limit: int = 12) -> str:
    """Say ascending numbers as runs, ``0-11, 14``; past ``limit`` runs the rest is only counted."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    said = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs[:limit])
    left = sum(b - a + 1 for a, b in runs[limit:])
    return f"{said} and {left:,} more" if left else said


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


def blocks(activity: Sequence[int | None]) -> Markdown:
    """Draw daily activity with block characters: a dot unknown, the lowest block none."""
    top = max((hours for hours in activity if hours), default=1)
    drawn = ("·" if h is None else _BLOCKS[math.ceil(h / top * (len(_BLOCKS) - 1))] for h in activity)
    return Markdown("".join(drawn))


def promises(rules: Sequence[RuleInForce], given: Sequence[Promise]) -> tuple[tuple[str, ...], ...]:
    """Say what a verdict by each of these rules promises and what it does not, and what holds for all."""
    return (*(_by_rule(rule, given) for rule in rules), _OF_ALL)


def _by_rule(rule: RuleInForce, given: Sequence[Promise]) -> tuple[str, ...]:
    if rule.rule == "traffic-clock":
        return (
            (
                f"Rule traffic-clock, in slots of {duration(rule.slot_seconds)}: a silence is measured by the active "
                "slots that it missed, given how busy the partition usually is at that hour of the week, and compared "
                "with the largest of each of the 8 weeks before. The score says how many spreads it lies above the "
                "usual. A topic is judged alike, as the union of its partitions."
            ),
            *map(_promise, given),
            (
                "A false alarm is a death whose silence ends within 28 days of its beginning: a repaired outage "
                "counts, and a silence that is new but intended (a finished campaign)."
            ),
        )
    if rule.rule == "period":
        return (
            (
                "Rule period, for what is written too seldom for a profile but regularly: dead past 1.75 times its "
                "longest silence in 12 weeks. It is not calibrated."
            ),
        )
    if rule.rule == "override":
        return ("Rule override: the configuration says what these topics are, or how long they may be silent.",)
    return (f"Rule {rule.rule}, in slots of {duration(rule.slot_seconds)}.",)


def _promise(given: Promise) -> str:
    promised = "the threshold rests on the prior, for the fleet has too few weeks to promise a rate of false alarms"
    if given.promised is not None:
        promised = f"promised are at most {given.promised:g} false alarms per 1,000 topic-weeks"
    realised = "none of its past silences could be judged yet"
    if given.realised is not None and given.realised_low is not None and given.realised_high is not None:
        realised = (
            f"counted were {given.false_alarms:,} in {given.topic_weeks:,} topic-weeks, {rate(given.realised)} per "
            f"1,000 ({rate(given.realised_low)} to {rate(given.realised_high)} with 95 % confidence)"
        )
    if given.outages and given.outages_alarmed is not None:
        realised += f"; {given.outages_alarmed:,} of {given.outages:,} repaired outages were called dead"
    return f"A {given.kind} is dead past a score of {given.dead_score:.3g}: {promised}; {realised}."
