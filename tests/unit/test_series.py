"""Series rendered from snapshots: right for the client's parser, absent where nothing is known."""

import math
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from exporter.collectors.poller import Poller
from exporter.domain.judging.detection import Detector
from exporter.domain.polls.readings import Reason, State, TopicPartition
from exporter.domain.verdicts import Verdict
from exporter.metrics.catalogue import PARTITION_METRICS, TOPIC_METRICS
from exporter.metrics.series import ClusterSeries
from exporter.settings.schema import MetricsSettings
from tests.exposed import exposed
from tests.judging import Judgement
from tests.lookup_answers import Answer
from tests.snapshots import assessment_of, snapshot_of, topics_of
from tests.unit.readings import Collected, ManualClock, TableSource
from tests.views import Reading

ALL = [metric.switch for metric in PARTITION_METRICS if metric.switch is not None]
A, B = TopicPartition("a", 0), TopicPartition("b", 0)

NOW = 1_000_010.0
OBSERVED = Reading(
    State.OBSERVED,
    1,
    2,
    12,
    999_939.5,
    last_good_poll=1_000_000.0,
    previous_poll=999_970.0,
    last_advance=999_940.0,
    silent_since=999_940.0,
    polls_good=3,
)


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Parse an exposition; a sample that stands twice is an error."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found
            found[key] = sample.value
    return found


def shown(
    source: TableSource, clock: ManualClock, switches: list[str] | tuple[str, ...] = ALL
) -> tuple[str, Collected]:
    """Poll once and render, ten seconds later."""
    collected = Collected()
    Poller("prod", source, [collected], clock).poll()
    series = ClusterSeries("prod", partition_switches=switches)
    snapshot = collected.snapshots[-1]
    series.update(snapshot, Detector().assess(snapshot, clock.now()))
    return exposed({"prod": series}, clock.now() + 10), collected


def test_what_is_not_known_has_no_sample() -> None:
    """An empty partition has offsets but no timestamp, and an unreadable one only its state."""
    source = TableSource({A: (0, 0, None), B: (0, 5, 900_000.0)}, failures={B: Answer(reason=Reason.NOT_LEADER)})
    text, _ = shown(source, ManualClock())
    names = {name for (name, labels), _ in samples(text).items() if ("topic", "b") in labels}
    assert "kafka_topic_partition_current_offset" not in names
    assert 'kafka_topic_partition_state{kafka_cluster="prod",topic="b",partition="0",state="unreadable"} 1' in text
    assert 'kafka_topic_partition_current_offset{kafka_cluster="prod",topic="a",partition="0"} 0' in text
    assert 'kafka_topic_partition_last_record_timestamp_seconds{kafka_cluster="prod",topic="a"' not in text
    assert "-1" not in text
    assert "NaN" not in text


def test_a_timestamp_that_offsets_contradict_is_no_staleness() -> None:
    """What the record says is shown, and that nothing was written since the last advance; no age follows from them."""
    text, _ = shown(TableSource({A: (0, 5, 1_000_100.0)}), clock := ManualClock())
    assert 'state="future"' in text
    snapshot = snapshot_of({A: replace(OBSERVED, state=State.CONTRADICTORY, newest=clock.time)})
    series = ClusterSeries("prod", partition_switches=ALL)
    series.update(snapshot, Detector().assess(snapshot, NOW))
    text = exposed({"prod": series}, NOW)
    assert 'state{kafka_cluster="prod",topic="a",partition="0",state="contradictory"} 1' in text
    assert 'last_record_timestamp_seconds{kafka_cluster="prod",topic="a",partition="0"} 1000000' in text
    assert "staleness_seconds{" not in text
    assert "last_advance_timestamp_seconds{" in text


def test_the_silence_of_a_topic_is_that_of_its_last_partition_that_advanced() -> None:
    """Shown without series of partitions too, growing between polls; absent where no advance is known."""
    snapshot = snapshot_of({A: OBSERVED, B: OBSERVED})
    series = ClusterSeries("prod", partition_switches=(), partitions=False)
    series.update(snapshot, assessment_of(snapshot, topics={"a": Judgement(Verdict.LIVE, 999_940.0)}))
    text = exposed({"prod": series}, NOW, TOPIC_METRICS)
    assert 'kafka_topic_last_advance_timestamp_seconds{kafka_cluster="prod",topic="a"} 999940' in text
    assert 'kafka_topic_silence_seconds{kafka_cluster="prod",topic="a"} 70.000' in text
    assert 'kafka_topic_silence_seconds{kafka_cluster="prod",topic="b"}' not in text


def test_by_default_a_partition_has_at_most_six_series() -> None:
    """The series budget holds for a partition that is observed and live."""
    source = TableSource({A: (0, 5, 999_900.0)})
    text, _ = shown(source, ManualClock(), MetricsSettings().partition)
    assert len([line for line in text.splitlines() if line.startswith("kafka_topic_partition_")]) <= 6


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.integers(0, 2**63 - 2), st.floats(0, 4e9))
def test_any_name_and_value_survives_the_text_format(topic: str, offset: int, timestamp: float) -> None:
    """What the client's parser reads back is what was rendered, whatever the topic is called."""
    key = TopicPartition(topic, 0)
    text, _ = shown(TableSource({key: (0, offset + 1, timestamp)}), ManualClock())
    found = samples(text)
    labels = (("kafka_cluster", "prod"), ("partition", "0"), ("topic", topic))
    assert found["kafka_topic_partition_current_offset", labels] == offset + 1
    assert found["kafka_topic_partition_last_record_timestamp_seconds", labels] == timestamp
    age = found["kafka_topic_partition_staleness_seconds", labels]
    assert math.isclose(age, max(0.0, 1_000_010.0 - timestamp), abs_tol=0.001)


def test_the_owner_of_a_topic_is_that_of_the_last_poll() -> None:
    """What was rendered of settings is rendered again when the metadata changed, the topics being the same."""
    series = ClusterSeries("prod", partition_switches=[])
    for owner in ("team-a", "team-b"):
        topics = {name: replace(info, owner=owner) for name, info in topics_of({A: OBSERVED}).items()}
        snapshot = snapshot_of({A: OBSERVED}, topics)
        series.update(snapshot, assessment_of(snapshot))
        text = exposed({"prod": series}, NOW, TOPIC_METRICS)
        assert text.count('owner="') == text.count(f'owner="{owner}"') == 2


def test_a_topic_made_again_counts_its_records_from_zero() -> None:
    """Records add up from poll to poll, also of partitions that come later, until the topic has another id."""
    series = ClusterSeries("prod", partition_switches=[])
    gained = replace(OBSERVED, advanced_by=5)
    totals = []
    for partitions, topic_id in [(1, "id-1"), (2, "id-1"), (2, None), (2, "id-1"), (2, "id-2"), (2, "id-2")]:
        readings = {TopicPartition("a", number): gained for number in range(partitions)}
        topics = {name: replace(info, topic_id=topic_id) for name, info in topics_of(readings).items()}
        snapshot = snapshot_of(readings, topics)
        series.update(snapshot, assessment_of(snapshot))
        found = samples(exposed({"prod": series}, NOW))
        totals.append(found["kafka_topic_records_total", (("kafka_cluster", "prod"), ("topic", "a"))])
    assert totals == [5, 15, 25, 35, 0, 10]
