"""Records that a broker does not find by time, since segments without live ones lie before them (Kafka 4.3.1)."""

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from exporter.backfill.cutoff import Request
from exporter.clock import SystemClock
from exporter.commands.offsets import Gap, Spec, Time, list_offsets
from exporter.domain.history.rows import Window
from exporter.domain.polls.readings import Reason, State, TopicPartition
from tests.backfill_rows import Run, run_backfill
from tests.demo.broker import KAFKA_VERSION, Broker
from tests.groups import groups_of
from tests.integration.kafka import Kafka
from tests.integration.lagging import holds, measuring, read
from tests.integration.sweeping import commit
from tests.integration.watch import Watch, seen
from tests.times import first_since
from tests.views import readings_of
from tests.workbench import EVERLASTING

HOUR, DAY = 3600.0, 86_400.0
CLEANED = "cleaned"
SEGMENTS = {**EVERLASTING, "segment.bytes": str(2**20)}
SIXTH = b"x" * 180_000
"""Six records of this size fill a segment. Smaller segments would become one when they are cleaned."""


@pytest.fixture(scope="module")
def lingering(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that deletes no segment, however far DeleteRecords moved the log start, as for minutes in production."""
    properties = {"log.retention.check.interval.ms": str(10**9)}
    with Broker(tmp_path_factory.mktemp("lingering"), jars=kafka_jars, properties=properties) as running:
        yield running


@pytest.fixture(scope="module")
def bench(lingering: Broker) -> Kafka:
    return Kafka(KAFKA_VERSION, lingering.bootstrap)


def segments(broker: Broker, topic: str) -> dict[int, Path]:
    return {int(path.stem): path for path in sorted((broker.folder / "data" / f"{topic}-0").glob("*.log"))}


def size(path: Path) -> int:
    """The size of a segment, -1 while the cleaner replaces it."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return -1


@pytest.fixture(scope="module")
def times(lingering: Broker, bench: Kafka) -> list[float]:
    """Six days of hourly records under three keys, until now, in a topic whose old segments were cleaned, once.

    The dates of empty files are those of a topic that was really written for six days. Returns the times of records.
    """
    bench.create(CLEANED, config=SEGMENTS)
    last = time.time() - 94
    times = [last - hour * HOUR for hour in range(144, -1, -1)]
    bench.write_keyed(CLEANED, [(f"k{n % 3}", at) for n, at in enumerate(times)], SIXTH)
    before = len(segments(lingering, CLEANED))
    bench.alter(CLEANED, {"cleanup.policy": "compact"})
    # The last but one holds the last records of all keys before the active one, which is not cleaned.
    bench.until(lambda: sum(not size(path) for path in segments(lingering, CLEANED).values()) == before - 2)
    files = segments(lingering, CLEANED)
    for base, following in zip(files, [*list(files)[1:], len(times)], strict=True):
        if not size(files[base]):
            at = times[following - 1] + 1
            os.utime(files[base], (at, at))
    return times


def run(bootstrap: str, topic: str) -> Run:
    request = Request(cluster="c", exporter="e", horizon=56 * DAY)
    return run_backfill(Watch(bootstrap, [topic]).source, request, SystemClock())


def covers(windows: Sequence[Window], times: Sequence[float]) -> None:
    """Assert that no record lies where the windows show a silence, and that the newest one is known."""
    for at in times:
        assert any(window.window_start <= at <= window.window_end for window in windows), at
    assert windows[-1].last_advance == pytest.approx(times[-1], abs=0.001)


def test_backfill_sees_no_silence_in_what_compaction_emptied(
    lingering: Broker, bench: Kafka, times: Sequence[float]
) -> None:
    """Written every hour until now: emptied segments make unknown hours, and the newest record ends the history."""
    source = Watch(lingering.bootstrap, [CLEANED]).source
    assert first_since(source, TopicPartition(CLEANED, 0), times[-20]).offset is None, "nothing is hidden"
    windows, _, result, _ = run(lingering.bootstrap, CLEANED)
    covers(windows, [at / 1000 for _, at in read(bench, CLEANED).records])
    assert all((window.records or 0) < 10 for window in windows if window.first_advance is not None)
    assert result.failed == {}
    assert result.lookups["by-time"] < 60


@pytest.mark.usefixtures("times")
def test_time_lags_are_true_or_unknown(lingering: Broker, bench: Kafka) -> None:
    """Wherever a group stands in such a log, its time lag is true within its bound, or there is none."""
    log, exporter = read(bench, CLEANED), measuring(lingering.bootstrap, f"{CLEANED}.*")
    for offset in range(0, 145, 6):
        commit(bench.bootstrap, f"{CLEANED}-{offset}", {CLEANED: offset})
    sweep = exporter.sweep()
    exporter.close()
    assert set(sweep.time_lags) <= {"ok", Reason.HIDDEN.value}, sweep.time_lags
    positions = [(group.partitions[TopicPartition(CLEANED, 0)], group.read_at) for group in groups_of(sweep).values()]
    known = [(position, at) for position, at in positions if position.time_lag is not None]
    assert known
    for position, at in known:
        holds(log, position, at, compacted=True)


def test_offsets_say_what_is_hidden(lingering: Broker, times: Sequence[float]) -> None:
    """A time before records that the broker does not find is not the end of the log; the newest record is there."""
    source = Watch(lingering.bootstrap, [CLEANED]).source
    wanted: list[Time] = [times[-20], times[-1] + 1, Spec.MAX_TIMESTAMP]
    rows = list(list_offsets("c", source, source.metadata(), wanted, SystemClock()))
    assert [row.reason for row in rows] == [Reason.HIDDEN, Gap.NO_RECORD_SINCE, None]
    assert (rows[-1].offset, rows[-1].timestamp_ms) == (144, round(times[-1] * 1000))


def test_segments_past_the_log_start_hide_no_death(lingering: Broker, bench: Kafka) -> None:
    """DeleteRecords into a later segment: the files before it stay for a while, and hide older times alone."""
    bench.create("purged", config=SEGMENTS)
    last = time.time() - 30
    times = [last - hour * HOUR for hour in range(60, -1, -1)]
    bench.write_keyed("purged", [("", at) for at in times], SIXTH)
    start = list(segments(lingering, "purged"))[-3] + 2
    bench.delete_records("purged", 0, start)
    source = Watch(lingering.bootstrap, ["purged"]).source
    assert first_since(source, TopicPartition("purged", 0), times[0]).offset is None, "nothing is hidden"
    windows, *_ = run(lingering.bootstrap, "purged")
    covers(windows, times[start:])
    assert sum(window.first_advance is not None for window in windows) >= len(times) - start - 2


def test_before_3_8_a_batch_that_the_log_start_cuts_names_no_newest(kafka: Kafka) -> None:
    """Brokers 3.0 to 3.7 name the end of a batch: of its deleted records, one is the newest all the same."""
    if not kafka.knows_max_timestamp:
        return
    now = time.time()
    topics = ("cut-later", "cut-known", "cut-tied")
    watch = Watch(kafka.bootstrap, topics)
    for topic in topics:
        kafka.create(topic)
        last = [DAY + 10, DAY + 20] if topic == "cut-tied" else [DAY + 20, DAY + 10]
        kafka.write([(topic, 0, now - ago) for ago in (600, *last)], b"x", **{"linger.ms": "500"})
    moved = Watch(kafka.bootstrap, topics)
    moved.poll()
    for topic in topics:
        kafka.delete_records(topic, 0, 1)
    if kafka.number < (3, 8):
        assert kafka.raw_max_timestamp(TopicPartition("cut-later", 0)) == (2, round((now - 600) * 1000) / 1000)
    newest = round((now - DAY - 10) * 1000) / 1000
    for each in (watch, moved):
        readings = readings_of(each.poll())
        for topic in topics[:2]:
            assert seen(readings[TopicPartition(topic, 0)]) == (State.OBSERVED, 1, 3, newest)
        tied = readings[TopicPartition("cut-tied", 0)]
        assert (*seen(tied), tied.reason) == (State.UNREADABLE, 1, 3, None, Reason.HIDDEN)
        each.source.close()
    source = Watch(kafka.bootstrap, topics).source
    rows = list(list_offsets("c", source, source.metadata(), [Spec.MAX_TIMESTAMP], SystemClock()))
    found = {row.topic: (row.offset, row.timestamp_ms, row.reason) for row in rows}
    assert found == {
        "cut-later": (2, round(newest * 1000), None),
        "cut-known": (2, round(newest * 1000), None),
        "cut-tied": (None, None, Reason.HIDDEN),
    }
    windows, _, result, _ = run(kafka.bootstrap, "cut-tied")
    covers_unknown(windows, now - DAY - 10, now)
    assert result.failed == {}
    source.close()


def covers_unknown(windows: Sequence[Window], last: float, until: float) -> None:
    """Assert that no history says of a partition whose newest record is hidden that it is silent since."""
    assert windows[0].window_start <= last
    assert windows[-1].first_advance is None
    assert windows[-1].window_end >= until - 1


def test_before_3_0_the_end_of_a_log_is_no_silence(kafka: Kafka) -> None:
    """Without MAX_TIMESTAMP a search proves the newest record where that is the last one, or none was removed."""
    if kafka.knows_max_timestamp:
        return
    now = round(time.time() - 94)
    kafka.create("last-of-all")
    kafka.create("two-at-once")
    kafka.write([("last-of-all", 0, now - hour * HOUR) for hour in range(5, -1, -1)])
    kafka.write([("two-at-once", 0, now - hour * HOUR) for hour in (3, 2, 1, 1)])
    windows, _, result, _ = run(kafka.bootstrap, "last-of-all")
    assert (windows[-1].last_advance, result.failed) == (now, {})
    windows, _, result, _ = run(kafka.bootstrap, "two-at-once")
    assert (windows[-1].last_advance, result.failed) == (now - HOUR, {})
    kafka.delete_records("two-at-once", 0, 1)
    windows, _, result, _ = run(kafka.bootstrap, "two-at-once")
    covers_unknown(windows, now - HOUR, time.time() - 30)
    assert (sum(window.records or 0 for window in windows), result.failed) == (3, {})
