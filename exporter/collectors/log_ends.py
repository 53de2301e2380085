"""The log start and the log end of each partition in one poll: which look-ups are due, and what they say."""

import numpy as np

from exporter.domain.arrays import Codes, Flags
from exporter.domain.polls.activity import Sightings
from exporter.domain.polls.layout import NO_LEADER
from exporter.domain.polls.metadata import Metadata
from exporter.domain.polls.readings import ANSWERED, NO_ANSWER, Answers, Reason, reason_code, rows_with
from exporter.domain.polls.table import Table
from exporter.domain.ports import PollSource

_OUTDATED = (Reason.NOT_LEADER, Reason.UNKNOWN_TOPIC)
"""Answers of a broker with newer metadata: metadata is read again, and the rows are looked up again."""


class LogEnds:
    """The log start and the log end of each partition in one poll."""

    def __init__(self, metadata: Metadata, table: Table) -> None:
        """``table`` is that of the poll before; no look-up is sent."""
        membership = metadata.membership
        layout = membership.layout
        self._membership = membership
        self.leader = membership.leader
        self.table = table.move_to(layout)
        self._topic_id = metadata.topic_numbers[layout.topic]
        self._known = ~np.isnan(self.table.last_good_poll) & (self._topic_id == self.table.topic_id)
        self._topic_reason = metadata.reason_of_topics[layout.topic]
        self._earliest = Answers.make_blank(len(layout))
        self._latest = Answers.make_blank(len(layout))

    def ask(self, source: PollSource, turn: int, turns: int) -> None:
        """Look up missing offsets: LATEST of all rows with a leader, EARLIEST of new rows and of each row in its turn.

        EARLIEST comes first: in the other order, retention in between could make earliest larger than latest.
        """
        rows = np.flatnonzero((self.leader != NO_LEADER) & (self._latest.reason == NO_ANSWER))
        due = rows[~self._known[rows] | (rows % turns == turn % turns)]
        if len(due):
            self._earliest.put(due, source.starts(self._membership.part(due)))
        rows = rows[self._earliest.reason[rows] <= ANSWERED]
        if len(rows):
            self._latest.put(rows, source.ends(self._membership.part(rows)))
        fell = np.flatnonzero(self._fell() & (self._earliest.reason == NO_ANSWER))
        if len(fell):
            self._earliest.put(fell, source.starts(self._membership.part(fell)))

    def _fell(self) -> Flags:
        answered = (self._latest.reason == ANSWERED) & self._latest.found
        fell: Flags = self._known & answered & (self._latest.offset < self.table.latest)
        return fell

    def is_outdated(self) -> bool:
        """Return whether answers show that the metadata is outdated: a topic is gone, created again or led elsewhere.

        True also where no partition could be read: the whole cluster may be gone.
        """
        moved = rows_with(self._latest.reason, _OUTDATED) | rows_with(self._earliest.reason, _OUTDATED)
        nothing = bool((self.leader != NO_LEADER).any()) and not bool(self._good().any())
        return nothing or bool(moved.any())

    def list_restarted(self) -> list[str]:
        """Return the topics where an end offset or a leader epoch fell: they may have been created again."""
        older = (self._latest.epoch >= 0) & (self._latest.epoch < self.table.epoch) & self._known
        layout = self.table.layout
        return [layout.topics[topic] for topic in np.unique(layout.topic[older | self._fell()]).tolist()]

    def doubtful(self) -> bool:
        """Return whether metadata must be read again before the next poll: something could not be read."""
        return bool((~self._good() & (self.unread != reason_code(Reason.UNAUTHORIZED))).any())

    def _good(self) -> Flags:
        begun = np.where(self._earliest.reason == NO_ANSWER, self._known, self._earliest.found)
        good: Flags = (self._latest.reason == ANSWERED) & self._latest.found & begun
        return good

    @property
    def unread(self) -> Codes:
        """Why rows could not be read, as reason codes; ANSWERED where they were read."""
        rules: list[tuple[Flags, int | Codes]] = [
            (self._good(), ANSWERED),
            (self._topic_reason != ANSWERED, self._topic_reason),
            (self.leader == NO_LEADER, reason_code(Reason.NO_LEADER)),
            (self._earliest.reason > 0, self._earliest.reason),
            (self._latest.reason > 0, self._latest.reason),
        ]
        codes = np.select(
            [rule for rule, _ in rules], [np.asarray(code) for _, code in rules], reason_code(Reason.MISSING_ANSWER)
        )
        return codes.astype(np.int8)

    def sightings(self) -> Sightings:
        """Return the readings of the poll."""
        answered = self._earliest.reason == ANSWERED
        return Sightings(
            good=self._good(),
            topic_id=self._topic_id,
            leader=self.leader,
            epoch=self._latest.epoch,
            earliest=np.where(answered, self._earliest.offset, self.table.earliest),
            latest=self._latest.offset,
        )
