"""One poll of one cluster: source -> snapshot -> sinks."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from exporter.domain import (
    Answer,
    Metadata,
    PollFailure,
    Reading,
    Reason,
    Snapshot,
    State,
    TopicConfig,
    TopicInfo,
    TopicPartition,
)
from exporter.domain.activity import Sighting, Standing, Tracker, classify, with_tier
from exporter.domain.ports import (
    Clock,
    Extent,
    InspectionKnowledge,
    OffsetSource,
    SnapshotSink,
    SourceError,
    TierKnowledge,
)

log = logging.getLogger(__name__)

CLOCK_SET_SECONDS = 5.0
"""Two clocks that part by more between polls: the wall clock was set. Less is its slow correction, and jitter."""


class Poller:
    """Polls one cluster: asks the source, remembers through the tracker, hands snapshots to the sinks."""

    def __init__(
        self,
        cluster: str,
        source: OffsetSource,
        sinks: Sequence[SnapshotSink],
        clock: Clock,
        *,
        future_slack_seconds: float = 60.0,
        tier: TierKnowledge | None = None,
        inspections: InspectionKnowledge | None = None,
        standing: Mapping[TopicPartition, Standing] | None = None,
    ) -> None:
        """``standing`` is where end offsets stood in an earlier life of the exporter, and since when."""
        self.cluster = cluster
        self._source = source
        self._sinks = sinks
        self._clock = clock
        self._future_slack = future_slack_seconds
        self._tier = tier
        self._inspections = inspections
        self._tracker = Tracker(standing)
        self._described: Mapping[str, TopicInfo] = {}
        self._counted: Mapping[str, int] = {}
        self._before: Snapshot | None = None
        self._clocks_apart: float | None = None
        self._clock_set = 0.0

    def poll(self) -> Snapshot | PollFailure:
        """Run one poll cycle and return what the sinks got. Never raises, whatever a cluster or a sink does.

        An error of this program is a failed poll like any other, and its traceback is logged.
        """
        started = self._clock.monotonic()
        try:
            snapshot = self._read(started)
        except SourceError as error:
            failure = self._failure(started, error.reason, error.detail)
        except Exception as error:
            log.exception("cluster %s: poll ended in an error of this program", self.cluster)
            failure = self._failure(started, Reason.OTHER, _own_error(error))
        else:
            return self._hand_over(snapshot, started)
        self._tracker.nothing_read()
        for sink in self._sinks:
            self._tell(sink, failure)
        return failure

    def _hand_over(self, snapshot: Snapshot, started: float) -> Snapshot | PollFailure:
        """Give every sink the snapshot; one that cannot take it has missed a poll, and the others have not."""
        outcome: Snapshot | PollFailure = snapshot
        for sink in self._sinks:
            try:
                sink.accept(snapshot)
            except Exception as error:
                log.exception("cluster %s: a good poll could not be taken in", self.cluster)
                outcome = self._failure(started, Reason.OTHER, _own_error(error))
                self._tell(sink, outcome)
        return outcome

    def _tell(self, sink: SnapshotSink, failure: PollFailure) -> None:
        try:
            sink.missed(failure)
        except Exception:
            log.exception("cluster %s: a failed poll could not be noted", self.cluster)

    def _failure(self, started: float, reason: Reason, detail: str) -> PollFailure:
        return PollFailure(self.cluster, self._clock.now(), self._clock.monotonic() - started, reason, detail)

    def _read(self, started: float) -> Snapshot:
        metadata = self._with_partitions_known_before(self._source.metadata())
        partitions = {
            TopicPartition(name, number): info
            for name, topic in metadata.topics.items()
            for number, info in topic.partitions.items()
        }
        leaders = {key: info.leader for key, info in partitions.items() if info.leader is not None}
        # EARLIEST first: asked the other way round, retention in between would give earliest > latest.
        earliest = self._source.earliest(leaders)
        taken_at = self._now()
        latest = self._source.latest({key: leaders[key] for key, answer in earliest.items() if answer.reason is None})
        sightings: dict[TopicPartition, Sighting] = {}
        for key, end in latest.items():
            start = earliest[key]
            if end.reason is None and end.offset is not None and start.offset is not None:
                sightings[key] = Sighting(
                    metadata.topics[key.topic].topic_id, leaders[key], end.leader_epoch, start.offset, end.offset
                )
        with_records = {key: seen for key, seen in sightings.items() if seen.latest > seen.earliest}
        moved = {
            key: Extent(seen.leader, seen.earliest, seen.latest, seen.leader_epoch)
            for key, seen in with_records.items()
            if self._tracker.needs_max_timestamp(key, seen)
        }
        newest = self._source.max_timestamp(moved)
        supported = self._source.max_timestamp_supported()
        readings: dict[TopicPartition, Reading] = {}
        for key, info in partitions.items():
            seen = sightings.get(key)
            if seen is None:
                readings[key] = Reading(
                    State.UNREADABLE,
                    self._tracker.unread(key),
                    info.leader,
                    reason=metadata.topics[key.topic].reason
                    or _why_unread(info.leader, earliest.get(key), latest.get(key)),
                    before=self._read_before(key, metadata.topics[key.topic].topic_id),
                )
                continue
            readings[key] = self._reading(key, seen, newest.get(key), supported, metadata, taken_at)
        self._tracker.keep_only(partitions)
        if self._inspections is not None:
            for key, reading in readings.items():
                inspected = self._inspections.of(key, metadata.topics[key.topic].topic_id)
                readings[key] = replace(reading, inspected=inspected)
        clock_set, self._clock_set = self._clock_set, 0.0
        self._before = Snapshot(
            cluster=self.cluster,
            taken_at=taken_at,
            duration_seconds=self._clock.monotonic() - started,
            metadata=metadata,
            readings=readings,
            max_timestamp_supported=dict(supported),
            lookups=self._new_lookups(),
            lookups_saved=len(with_records) - len(moved),
            clock_set=clock_set,
        )
        return self._before

    def _read_before(self, key: TopicPartition, topic_id: str | None) -> Reading | None:
        """Return what the last poll that could read a partition learnt of it; None where the topic is another since."""
        if self._before is None or (before := self._before.readings.get(key)) is None:
            return None
        if self._before.metadata.topics[key.topic].topic_id != topic_id:
            return None
        return before if before.latest is not None else before.before

    def _now(self) -> float:
        """Return the wall clock; where it was set since it was last asked, memory is moved along."""
        now = self._clock.now()
        apart = now - self._clock.monotonic()
        step = 0.0 if self._clocks_apart is None else apart - self._clocks_apart
        self._clocks_apart = apart
        if abs(step) > CLOCK_SET_SECONDS:
            log.warning(
                "cluster %s: the clock of this host was set %s by %.0f seconds: silences keep their length",
                self.cluster,
                "forward" if step > 0 else "back",
                abs(step),
            )
            self._tracker.clock_set(step)
            self._clock_set += step
        return now

    def _with_partitions_known_before(self, metadata: Metadata) -> Metadata:
        """Return the metadata with the partitions that a topic had before a poll that could not describe it.

        Without them one bad answer would end their silences and their series as a deletion does.
        """
        topics = dict(metadata.topics)
        for name, topic in metadata.topics.items():
            before = self._described.get(name)
            if topic.reason is not None and before is not None:
                led_by_none = {number: replace(info, leader=None) for number, info in before.partitions.items()}
                topics[name] = replace(before, partitions=led_by_none, reason=topic.reason)
        self._described = topics
        return replace(metadata, topics=topics)

    def _reading(
        self,
        key: TopicPartition,
        seen: Sighting,
        asked: Answer | None,
        supported: Mapping[int, bool],
        metadata: Metadata,
        taken_at: float,
    ) -> Reading:
        config = metadata.topics[key.topic].config
        activity = self._tracker.observe(key, seen, asked if _settled(asked, config) else None, taken_at)
        known = self._tracker.known_newest(key)
        tiered = config is not None and config.remote_storage
        state, reason = classify(
            seen.earliest,
            seen.latest,
            # One that moved and has no answer to rest on is no longer what was known before.
            asked if self._tracker.needs_max_timestamp(key, seen) else known,
            tiered=tiered,
            unsupported=supported.get(seen.leader) is False,
            latest_allowed=taken_at + self._future_slack,
            advanced_after=activity.advanced_after,
        )
        newest = None if known is None or state in _WITHOUT_TIMESTAMP else known.timestamp
        reading = Reading(state, activity, seen.leader, seen.earliest, seen.latest, newest, reason)
        if not tiered or self._tier is None:
            return reading
        return with_tier(
            reading, self._tier.facts(key, seen.topic_id, seen.latest), latest_allowed=taken_at + self._future_slack
        )

    def _new_lookups(self) -> Mapping[str, int]:
        before, self._counted = self._counted, dict(self._source.lookups())
        return Counter(self._counted) - Counter(before)


_WITHOUT_TIMESTAMP = (State.EMPTY, State.NEVER_WRITTEN, State.UNSUPPORTED, State.NO_TIMESTAMP, State.UNREADABLE)


def _own_error(error: Exception) -> str:
    # Its text may quote anything, also a secret; the page and the metrics get its kind alone.
    return f"an error of this program ({type(error).__name__}); the log has its traceback; next step: report it"


def _settled(answer: Answer | None, config: TopicConfig | None) -> bool:
    """Tell whether an answer holds until the partition moves; a pending one must be asked again."""
    if answer is None or answer.reason is not None:
        return answer is not None and answer.reason is Reason.UNSUPPORTED_FORMAT
    return answer.offset is not None or (config is not None and config.remote_storage)


def _why_unread(leader: int | None, earliest: Answer | None, latest: Answer | None) -> Reason:
    if leader is None:
        return Reason.NO_LEADER
    for answer in (earliest, latest):
        if answer is not None and answer.reason is not None:
            return answer.reason
    return Reason.MISSING_ANSWER
