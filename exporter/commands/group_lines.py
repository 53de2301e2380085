"""The lines of ``explain`` about consumer groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from exporter.domain.formatting import duration, plural
from exporter.domain.groups.readers import GroupThere, groups_in, who_reads
from exporter.domain.groups.roles import GroupRole
from exporter.domain.groups.sweep import GroupSweep

_NAMED = 5


def labelled(label: str, text: str) -> str:
    """Return a line with its label."""
    return f"{label:<13} {text}"


def group_lines(sweep: GroupSweep, topic: str, partition: int | None) -> Iterator[str]:
    """Yield the groups of a topic or partition, those furthest behind first, and whether some may be missing."""
    groups = sorted(groups_in(sweep, topic, partition), key=lambda one: -(one.lag or 0))
    by_role = {role: [_group(one, partition) for one in groups if one.role is role] for role in GroupRole}
    reading = by_role[GroupRole.ASSIGNED] + by_role[GroupRole.UNKNOWN]
    known = bool(who_reads(sweep, [topic]).known[0])
    if known and not reading:
        yield labelled("read by", "no consumer group")
    yield from _named("read by", plural(len(reading), "consumer group"), reading)
    left, gone = by_role[GroupRole.COMMITTED], by_role[GroupRole.GONE]
    yield from _named("left by", f"{plural(len(left), 'group')} with members elsewhere", left)
    # Any of these may have committed once, and never again.
    yield from _named("committed", f"{plural(len(gone), 'group')} without a member now", gone)
    if not known:
        yield from _unknown_readers(sweep, shown=bool(groups))


def _group(there: GroupThere, partition: int | None) -> str:
    """Return the name of a group, and how it stands."""
    details = []
    if there.role is not GroupRole.GONE:
        details.append("members unknown" if there.members is None else plural(there.members, "member"))
    if there.role is GroupRole.UNKNOWN:
        details.append("assignment unknown")
    if there.past_end:
        details.append(f"committed {there.past_end:,} past the end of the log, and skips records up to there")
    elif there.committed:
        details.append("lag unknown" if there.lag is None else f"lag {there.lag:,}")
    elif partition is not None:
        details.append("nothing committed here")
    if there.lag_seconds:
        details.append(f"the oldest {duration(there.lag_seconds)} old")
    # A client may choose any name for its group.
    name = there.group if there.group.isprintable() else ascii(there.group)
    return f"{name} ({', '.join(details)})" if details else name


def _unknown_readers(sweep: GroupSweep, *, shown: bool) -> Iterator[str]:
    """Yield why more groups may read the topic."""
    label = "" if shown else "read by"
    if not sweep.complete:
        reasons = Counter(sweep.failures) + Counter(sweep.unlisted)
        why = sweep.problem or ", ".join(f"{reason} {count}" for reason, count in sorted(reasons.items()))
        yield labelled(label, f"unknown{'' if sweep.blank else ' for some consumer groups'}: {why}")
    elif not sweep.all_visible:
        yield labelled(label, "perhaps hidden consumer groups: grant DESCRIBE on groups to see all")
    elif sweep.others is None:
        yield labelled(label, "perhaps share or streams groups, which could not be listed")
    elif sweep.others:
        others = [
            f"{name if name.isprintable() else ascii(name)} ({one.type or 'unknown'} group, {one.state or 'unknown'})"
            for name, one in sorted(sweep.others.items())
        ]
        yield from _named(label, "perhaps groups that do not say what they read", others)
    elif sweep.narrowed and not shown:
        yield labelled("read by", "no consumer group that `groups.include` and `groups.exclude` select")


def _named(label: str, count: str, groups: Sequence[str]) -> Iterator[str]:
    """Yield the first groups of a list; nothing where it is empty."""
    for place, each in enumerate(groups[:_NAMED]):
        yield labelled("" if place else label, each if place else f"{count}: {each}")
    if len(groups) > _NAMED:
        yield labelled("", f"and {len(groups) - _NAMED} more")
