"""What an audit says of each topic: one word, and the facts behind it. Facts are columns; sentences are made last.

An audit asks brokers once. It has no history of its own, so it rests on timestamps of records, and says so wherever
they may be wrong. It calls nothing abandoned that it could not read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from exporter.domain.arrays import Codes, ColumnSet, Flags, Floats, choose
from exporter.domain.formatting import duration, moment
from exporter.domain.history.streams import Strings, objects
from exporter.domain.judging.rollup_verdicts import Verdicts
from exporter.domain.learning.hours import Integers
from exporter.domain.polls.readings import Reason, reason_code
from exporter.domain.verdicts import GAPS, VERDICT_CODES, Verdict

LIVE_SECONDS = 3600.0
"""A topic whose newest record is at most this old is written now: the same hour as for the verdict ``live``."""

WEEK_SECONDS = 7 * 86_400.0
"""A topic that is dead for a shorter time died this week: somebody may still repair it, so it is not abandoned."""

FIRST_PLAUSIBLE = 946_684_800.0
"""2000-01-01. A newest record from before has no time: Kafka is younger, and seconds in place of milliseconds read as
1970."""

NOT_JUDGED = -1
"""Stands in a column of verdicts where none was given."""


class Liveness(StrEnum):
    """What a topic is, most urgent first."""

    DIED = "died this week"
    OVERDUE = "overdue"
    ABANDONED = "abandoned"
    UNKNOWN = "unknown"
    SILENT = "silent as usual"
    WRITTEN = "written now"
    EMPTY = "empty"
    NEVER_WRITTEN = "never written"


LIVENESS = tuple(Liveness)
LIVENESS_CODES: Mapping[Liveness, int] = {one: code for code, one in enumerate(LIVENESS)}
"""Codes in columns are indices into LIVENESS, which is in order of urgency."""

URGENT = (Liveness.DIED, Liveness.OVERDUE, Liveness.ABANDONED, Liveness.UNKNOWN)
"""What the exit code of an audit reports."""


class Doubt(StrEnum):
    """Why timestamps of a topic do not say when it was last written."""

    NONE = "none"
    SECONDS = "seconds"
    """They are seconds, not milliseconds."""
    IMPLAUSIBLE = "implausible"
    """They lie before 2000, and are no plausible seconds either."""
    AHEAD = "ahead"
    """Some lie in the future, often because they are microseconds: when these records were written is not known."""


DOUBTS = tuple(Doubt)
DOUBT_CODES: Mapping[Doubt, int] = {one: code for code, one in enumerate(DOUBTS)}


@dataclass(frozen=True, slots=True)
class TopicRelations:
    """Who reads the topics of one cluster, and how large they are, as far as an audit could read it."""

    assigned: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Topic -> sorted names of groups with a member that has a partition of it: they read it now."""
    committed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Topic -> sorted names of other groups that committed an offset in it."""
    all_groups: bool = False
    """Whether these are all groups. Elsewhere a topic that none is known to read may have readers."""
    bytes: Floats | None = None
    """The bytes of each topic of the layout on all replicas, NaN where not all are known; None: not read."""
    problems: tuple[str, ...] = ()
    """What is not known, and why; for people."""

    def readers(self, topic: str) -> tuple[str, ...] | None:
        """Return the groups that read a topic now; None where nobody can say."""
        return self.assigned.get(topic, () if self.all_groups else None)


@dataclass(frozen=True, slots=True, eq=False)
class AuditTopics(ColumnSet):
    """Topics, each a column [n]. Moments are Unix seconds, durations seconds; NaN and None are unknown."""

    cluster: Strings
    topic: Strings
    partitions: Integers
    unread: Integers
    """Partitions that could not be read."""
    reason: Codes
    """The reason code of one of these."""
    empty: Flags
    """No partition holds a record; all were read."""
    never_written: Flags
    """No partition ever held one; all were read."""
    records: Integers
    """Offsets between the first and the end of partitions that were read: markers and compacted records count."""
    last_record: Floats
    """The newest plausible timestamp."""
    doubt: Codes
    """An index into DOUBTS: of any partition."""
    by_time: Flags
    """The newest record was found by look-ups by time."""
    advanced: Flags
    """The end offset rose while the audit ran."""
    looked_back: Flags
    """Its past was searched as far as it had to be."""
    searched: Integers
    """Partitions whose past was searched, those with most records; 0 where that was not needed."""
    verdict: Codes
    """An index into VERDICTS, or NOT_JUDGED."""
    longest_silence: Floats
    """The longest silence before the present one; an upper bound where only some partitions were searched."""
    evidence: Strings
    """Why it has its verdict."""
    bytes: Floats
    """Log sizes of all replicas."""
    policy: Strings
    retention: Floats
    """``inf`` where it is unlimited."""
    errors: Flags
    """It is a dead-letter, retry or error topic by its name."""
    internal: Flags
    copy_of: Strings
    """The alias of the cluster from which MirrorMaker copies it."""
    owner: Strings
    readers: Strings
    """Names of the groups that read it now: a member has a partition of it."""
    committed: Strings
    """Names of the other groups that committed an offset in it."""

    @classmethod
    def make_refused(cls, cluster: str, topics: Sequence[str], relations: TopicRelations) -> AuditTopics:
        """Return topics that consumer groups read, and that brokers do not list: they may not be described."""
        return cls.blank(
            len(topics),
            cluster=cluster,
            topic=objects(topics),
            unread=1,
            reason=reason_code(Reason.UNAUTHORIZED),
            verdict=NOT_JUDGED,
            readers=objects([relations.readers(name) for name in topics]),
            committed=objects([relations.committed.get(name, ()) for name in topics]),
        )


def classify(topics: AuditTopics, now: float) -> Codes:
    """Return what each topic is, as indices into LIVENESS.

    Only a topic of which every partition was read can be abandoned, overdue, silent as usual or empty.
    """
    silence = now - topics.last_record
    unread = topics.unread > 0
    with np.errstate(invalid="ignore"):
        written = topics.advanced | (silence <= LIVE_SECONDS)
        recent = silence < WEEK_SECONDS
    doubted = np.isnan(topics.last_record) | (topics.doubt != DOUBT_CODES[Doubt.NONE])
    dead = _is(topics.verdict, Verdict.DEAD, Verdict.RETIRED)
    rules: list[tuple[Flags, Liveness]] = [
        (written, Liveness.WRITTEN),
        (unread, Liveness.UNKNOWN),
        (topics.never_written, Liveness.NEVER_WRITTEN),
        (topics.empty, Liveness.EMPTY),
        (doubted, Liveness.UNKNOWN),
        (dead & recent, Liveness.DIED),
        (dead, Liveness.ABANDONED),
        (_is(topics.verdict, Verdict.SUSPECT, Verdict.LATE, Verdict.HELD), Liveness.OVERDUE),
        (_is(topics.verdict, Verdict.LIVE, Verdict.QUIET, Verdict.MUTED), Liveness.SILENT),
    ]
    return choose(rules, Liveness.UNKNOWN, LIVENESS_CODES)


def spare_earlier_silences(judged: Verdicts, longest: Floats, last: Floats) -> tuple[Codes, Strings]:
    """Return verdicts and evidence of topics without a rhythm: one that was silent for as long before is quiet.

    ``longest`` is the longest silence before the present one in seconds, ``last`` the last record (Unix seconds). The
    law of gaps knows only their number and their sum.
    """
    verdict, evidence = judged.verdict.copy(), judged.evidence.copy()
    with np.errstate(invalid="ignore"):
        before = (judged.rule == GAPS) & (judged.silence_seconds <= longest)
    for row in np.flatnonzero(before & _is(verdict, Verdict.SUSPECT, Verdict.DEAD, Verdict.RETIRED)).tolist():
        verdict[row] = VERDICT_CODES[Verdict.QUIET]
        silent, earlier = duration(float(judged.silence_seconds[row])), duration(float(longest[row]))
        evidence[row] = f"silent {silent} (since {moment(float(last[row]))}); it was silent for {earlier} before"
    return verdict, evidence


def roles_of(topics: AuditTopics, row: int) -> list[str]:
    """Return the words that stand beside what a topic is: it is silent by its nature, or holds state."""
    words = []
    if topics.errors[row]:
        words.append("error topic")
    if topics.internal[row]:
        words.append("internal")
    if is_compacted(topics.policy[row]):
        words.append("compacted")
    elif topics.retention[row] == np.inf:
        words.append("kept for ever")
    return words


def _is(verdict: Codes, *wanted: Verdict) -> Flags:
    found: Flags = np.isin(verdict, [VERDICT_CODES[one] for one in wanted])
    return found


def find_doubts(newest: Floats, now: float, slack: float) -> Codes:
    """Return why newest timestamps (NaN: none) say nothing about when a partition was written."""
    with np.errstate(invalid="ignore"):
        early = newest < FIRST_PLAUSIBLE
        seconds = early & (newest * 1000 >= FIRST_PLAUSIBLE) & (newest * 1000 <= now + slack)
        ahead = newest > now + slack
    rules = [(seconds, Doubt.SECONDS), (early, Doubt.IMPLAUSIBLE), (ahead, Doubt.AHEAD)]
    return choose(rules, Doubt.NONE, DOUBT_CODES)


def mirror_aliases(topics: Collection[str]) -> frozenset[str]:
    """Return the aliases of clusters from which MirrorMaker 2 copies, by the topics that it keeps for itself."""
    mirrors = any(name.startswith("mm2-") or name.endswith(".checkpoints.internal") for name in topics)
    marks = (".heartbeats", ".checkpoints.internal") if mirrors else ()  # an application has heartbeats too
    return frozenset(name.removesuffix(mark) for name in topics for mark in marks if name.endswith(mark))


def find_copies(topics: Sequence[str], aliases: Collection[str]) -> list[str | None]:
    """Return the alias of the cluster from which each topic is copied, None where it is no copy."""
    return [next((alias for alias in aliases if name.startswith(f"{alias}.")), None) for name in topics]


def is_compacted(policy: str | None) -> bool:
    """Return whether a cleanup policy keeps the newest record of each key."""
    return policy is not None and "compact" in policy
