"""States of partitions and their last advances, from polls. Pure functions on columns."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Codes, Flags, Floats, Offsets, Rows, choose
from exporter.domain.polls.readings import ANSWERED, NO_ANSWER, Answers, Reason, State, reason_code
from exporter.domain.polls.table import NEWEST_KNOWN_OR_SOUGHT, STATE_CODES, UNREADABLE, Table

PRESERVED_PAST_SECONDS = 300.0
"""A newest record dated this much before it can have been written has a timestamp from elsewhere.

Producers delay records for up to ``delivery.timeout.ms`` (2 minutes), and their clocks differ from ours.
"""

PENDING_SECONDS = 300.0
"""Where a partition does not move and has no newest record for this long, none will come.

Its timestamp lies before 1970, and brokers return none of those (seen on 4.3.1).
"""

NOTHING, DATED, UNDATED, NO_RECORD, OLD_FORMAT, UNPROVED = range(6)
"""Kinds of good MAX_TIMESTAMP answers, the column ``Table.answer``: none so far; a record with a timestamp; one
without; no record (it lies in the remote tier); refused, because records before 0.10 have no timestamps (error 43);
one that may be deleted, with ``Reason.HIDDEN``."""

_FORMAT, _HIDDEN = reason_code(Reason.UNSUPPORTED_FORMAT), reason_code(Reason.HIDDEN)

_WITHOUT_TIMESTAMP = [
    STATE_CODES[state]
    for state in (State.EMPTY, State.NEVER_WRITTEN, State.UNSUPPORTED, State.NO_TIMESTAMP, State.UNREADABLE)
]


@dataclass(frozen=True, slots=True, eq=False)
class Sightings:
    """What one poll saw of n partitions. Other columns of a row are valid only where it is ``good``."""

    good: Flags
    """Whether both offsets were read."""
    topic_id: NDArray[np.int64]
    """The number of the topic id, 0 where it is unknown. Also valid in rows that are not good."""
    leader: NDArray[np.int32]
    epoch: NDArray[np.int32]
    """The leader epoch in the answer to LATEST, -1 where it has none."""
    earliest: Offsets
    latest: Offsets


def observe(table: Table, seen: Sightings, at: float) -> Table:
    """Return the table after a poll at ``at`` (Unix seconds), before the look-up of newest timestamps.

    An advance is a larger end offset than at the previous good poll. After a smaller one, or with a new topic id,
    offsets start over: no advance is counted then.
    """
    good = seen.good
    first = good & np.isnan(table.last_good_poll)
    known_ids = (table.topic_id != 0) & (seen.topic_id != 0)
    other = good & ~first & known_ids & (table.topic_id != seen.topic_id)
    gained = np.where(good & ~first & ~other, seen.latest - table.latest, 0)
    advanced, fell = gained > 0, gained < 0
    anew = first | other | advanced | fell
    before = table.last_good_poll
    unmoved = (
        (seen.leader == table.led_by)
        & ((seen.epoch == table.epoch) | (seen.epoch < 0) | (table.epoch < 0))
        & (seen.earliest == table.earliest)
        & (seen.latest == table.latest)
        & ~other
    )
    forgotten = other | fell
    return table.replace(
        read=good,
        other_topic=~good & (table.topic_id != seen.topic_id),
        advanced_by=np.where(other, seen.latest, np.maximum(gained, 0)),
        restarted=forgotten,
        led_by=np.where(good, seen.leader, table.led_by),
        epoch=np.where(good, seen.epoch, table.epoch),
        earliest=np.where(good, seen.earliest, table.earliest),
        latest=np.where(good, seen.latest, table.latest),
        earliest_local=np.where(good, np.nan, table.earliest_local),
        latest_tiered=np.where(good, np.nan, table.latest_tiered),
        last_good_poll=np.where(good, at, before),
        previous_poll=np.where(good, before, table.previous_poll),
        last_advance=np.where(advanced, at, np.where(other, np.where(seen.latest > 0, at, np.nan), table.last_advance)),
        silent_since=np.where(anew, at, table.silent_since),
        advanced_after=np.where(advanced | other, before, table.advanced_after),
        polls_good=np.where(anew, 1, table.polls_good + good).astype(np.int32),
        polls_missed=np.where(anew, 0, table.polls_missed + (~good & ~np.isnan(before))).astype(np.int32),
        topic_id=np.where(good, seen.topic_id, table.topic_id),
        answer=np.where(forgotten, NOTHING, table.answer).astype(np.int8),
        answered=np.where(forgotten, np.nan, table.answered),
        settled=table.settled & (~good | (unmoved & ~first)),
    )


def find_unsettled(table: Table) -> Rows:
    """Return the rows that hold records and moved since their last good MAX_TIMESTAMP answer."""
    return np.flatnonzero(table.read & (table.latest > table.earliest) & ~table.settled)


@dataclass(frozen=True, slots=True, eq=False)
class Circumstances:
    """What the meaning of an answer depends on: n rows, or one value for all."""

    tiered: Flags
    """Whether the topic has remote storage."""
    unsupported: Flags
    """Whether the leader is known not to support MAX_TIMESTAMP."""
    latest_allowed: float | Floats
    """The largest timestamp (Unix seconds) that does not count as future."""
    polled_at: float = -np.inf
    """When the poll was (Unix seconds)."""

    def latest_possible_advances(self, table: Table) -> Floats:
        """Return the largest timestamps that were not ahead: nothing was written since each silence began."""
        return np.where(np.isnan(table.silent_since), np.inf, table.silent_since + self.latest_allowed - self.polled_at)


def conclude(table: Table, rows: Rows, answers: Answers, given: Circumstances) -> Table:
    """Return the table with the states that follow from the MAX_TIMESTAMP answers for ``rows``.

    A good answer stays valid until the partition moves. The answer "no record" stays valid only where the record may
    lie in the remote tier. Elsewhere the row is pending, and is looked up again for PENDING_SECONDS, as where it is
    UNPROVED.
    """
    reasons = np.full(len(table), NO_ANSWER, dtype=np.int8)
    kinds, times = np.full(len(table), NOTHING, dtype=np.int8), np.full(len(table), np.nan)
    reasons[rows] = answers.reason
    kinds[rows] = kinds_of(answers)
    rested = given.polled_at - table.silent_since >= PENDING_SECONDS
    kinds = np.where((kinds == NO_RECORD) & ~given.tiered & rested, UNDATED, kinds).astype(np.int8)
    times[rows] = np.where(kinds[rows] == DATED, answers.timestamp, np.nan)
    settles = (kinds == DATED) | (kinds == UNDATED) | (kinds == OLD_FORMAT) | ((kinds == NO_RECORD) & given.tiered)
    settles |= (kinds == UNPROVED) & rested
    table = table.replace(
        answer=np.where(settles, kinds, table.answer).astype(np.int8),
        answered=np.where(settles, times, table.answered),
        settled=table.settled | settles,
    )
    failed = ~table.settled & (reasons > 0) & (kinds != OLD_FORMAT)
    state = classify(
        table.earliest,
        table.latest,
        np.where(table.settled, table.answer, kinds).astype(np.int8),
        table.answered,
        table.advanced_after,
        failed,
        given,
        allowed_since=given.latest_possible_advances(table),
    )
    reasons = np.where(table.settled & (table.answer == UNPROVED), _HIDDEN, reasons)
    shown = np.where(np.isin(state, _WITHOUT_TIMESTAMP), np.nan, table.answered)
    return table.replace(
        state=np.where(table.read, state, table.state).astype(np.int8),
        reason=np.where(table.read, np.where(state == UNREADABLE, reasons, ANSWERED), table.reason).astype(np.int8),
        newest=np.where(table.read, shown, table.newest),
    )


def classify(
    earliest: Offsets,
    latest: Offsets,
    answer: Codes,
    newest: Floats,
    advanced_after: Floats,
    failed: Flags,
    given: Circumstances,
    *,
    allowed_since: float | Floats = np.inf,
) -> Codes:
    """Return the states that follow from offsets and MAX_TIMESTAMP answers, as indices into STATES.

    ``answer`` is the kind of an answer and ``newest`` its timestamp (NaN: none). ``failed`` is where the look-up
    failed. ``allowed_since``: see ``Circumstances``.
    """
    dated = answer == DATED
    with np.errstate(invalid="ignore"):
        future = newest > given.latest_allowed
        contradictory = newest > allowed_since
        preserved = newest < advanced_after - PRESERVED_PAST_SECONDS
    rules: list[tuple[Flags, State]] = [
        ((latest == earliest) & (latest == 0), State.NEVER_WRITTEN),
        (latest == earliest, State.EMPTY),
        (given.unsupported, State.UNSUPPORTED),
        (latest < earliest, State.PENDING),
        (failed | (answer == UNPROVED), State.UNREADABLE),
        (answer == NOTHING, State.PENDING),
        ((answer == OLD_FORMAT) | (answer == UNDATED), State.NO_TIMESTAMP),
        ((answer == NO_RECORD) & given.tiered, State.IDLE_IN_TIER),
        (answer == NO_RECORD, State.PENDING),
        (dated & future, State.FUTURE),
        (dated & contradictory, State.CONTRADICTORY),
        (dated & preserved, State.PRESERVED),
    ]
    return choose(rules, State.OBSERVED, STATE_CODES)


def states_of(earliest: Offsets, latest: Offsets, newest: Answers, given: Circumstances) -> tuple[Codes, Codes]:
    """Return states (indices into STATES), and reason codes of why rows are unreadable, as ``classify`` finds them."""
    failed = (newest.reason > 0) & (newest.reason != _FORMAT)
    nothing = np.full(len(newest), np.nan)
    states = classify(earliest, latest, kinds_of(newest), newest.timestamp, nothing, failed, given)
    return states, np.where(states == UNREADABLE, newest.reason, ANSWERED).astype(np.int8)


def kinds_of(answers: Answers) -> Codes:
    """Return the kinds of MAX_TIMESTAMP answers, NOTHING for failed ones."""
    refused, hidden = answers.reason == _FORMAT, answers.reason == _HIDDEN
    rules = [refused, hidden, answers.reason != ANSWERED, ~answers.found, np.isnan(answers.timestamp)]
    kinds: Codes = np.select(rules, [OLD_FORMAT, UNPROVED, NOTHING, NO_RECORD, UNDATED], DATED).astype(np.int8)
    return kinds


@dataclass(frozen=True, slots=True, eq=False)
class TierFacts:
    """Facts about m partitions with remote storage that polls do not look up (KIP-405, KIP-1005); NaN: unknown.

    ``newest`` (Unix seconds) is the largest timestamp in both tiers, as long as the end offset has not moved.
    """

    earliest_local: Floats
    latest_tiered: Floats
    newest: Floats


def apply_tiers(table: Table, rows: Rows, tier: TierFacts, given: Circumstances) -> Table:
    """Return the table with the facts about the tiers of ``rows``, which the last poll read.

    Where the local log begins at the end offset, every record is in the remote tier.
    """
    code = STATE_CODES
    state, newest = table.state.copy(), table.newest.copy()
    now, known = state[rows], ~np.isnan(tier.newest)
    concerned = np.isin(now, NEWEST_KNOWN_OR_SOUGHT)
    newer = np.where(concerned & known, tier.newest, newest[rows])
    with np.errstate(invalid="ignore"):
        preserved = newer < table.advanced_after[rows] - PRESERVED_PAST_SECONDS
        future = newer > given.latest_allowed
        contradictory = newer > given.latest_possible_advances(table)[rows]
    dated = np.where(preserved, code[State.PRESERVED], code[State.OBSERVED])
    now = np.where((now == code[State.PENDING]) & known, dated, now)
    now = np.where(concerned & (tier.earliest_local == table.latest[rows]), code[State.IDLE_IN_TIER], now)
    ahead = np.where(future, code[State.FUTURE], code[State.CONTRADICTORY])
    now = np.where(concerned & (future | contradictory) & (now != code[State.PENDING]), ahead, now)
    local, tiered = table.earliest_local.copy(), table.latest_tiered.copy()
    state[rows], newest[rows] = now, newer
    local[rows], tiered[rows] = tier.earliest_local, tier.latest_tiered
    return table.replace(state=state, newest=newest, earliest_local=local, latest_tiered=tiered)


def miss_poll(table: Table) -> Table:
    """Return the table after a poll that failed for the whole cluster."""
    nobody = np.zeros(len(table), dtype=np.bool_)
    return table.replace(
        read=nobody,
        restarted=nobody,
        advanced_by=np.zeros(len(table), dtype=np.int64),
        polls_missed=(table.polls_missed + ~np.isnan(table.last_good_poll)).astype(np.int32),
    )


def clock_set(table: Table, seconds: float) -> Table:
    """Shift all remembered times after the wall clock was set by ``seconds``: silences keep their length."""
    moments = ("last_good_poll", "previous_poll", "last_advance", "silent_since", "advanced_after")
    return table.replace(**{name: getattr(table, name) + seconds for name in moments})
