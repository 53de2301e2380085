"""The command `offsets`: which times it accepts, what the answers mean, and its output formats."""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pytest

from exporter.cli import run
from exporter.commands.offsets import Gap, OffsetRow, Spec, list_offsets, list_to, parse_time
from exporter.domain.arrays import Offsets, Rows
from exporter.domain.polls.metadata import Membership, Metadata, TopicConfig
from exporter.domain.polls.readings import Answers, Reason, State, TopicPartition
from exporter.settings.schema import Settings
from tests.lookup_answers import Answer
from tests.times import answered
from tests.unit.readings import ManualClock, TableSource

NOON = datetime(2026, 3, 3, 12, tzinfo=UTC).timestamp()
KEY = TopicPartition("orders", 0)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-03-03T12:00:00Z", NOON),
        ("2026-03-03T12:00", NOON),
        ("2026-03-03 13:00:00+01:00", NOON),
        ("1772539200000", NOON),
        ("0", 0.0),
        ("-2h", NOON - 7200),
        ("2026-03-03T12:00:00.0001Z", NOON + 0.001),
        ("9999-12-31T23:59:59.999Z", 253_402_300_799.999),
    ],
)
def test_times_are_parsed(text: str, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A zone counts, without one it is UTC; plain digits are milliseconds; parts of a millisecond are rounded up."""
    monkeypatch.setattr("exporter.clock.time.time", lambda: NOON)
    assert parse_time(text) == seconds


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--time", "-7200"], "Invalid value for '--time': must be latest, earliest, "),
        (["--time", "1969-12-31T23:59:59Z"], "a time from 1970 to 9999"),
        (["--time", "1772539200000000"], "milliseconds since 1970, or a time ago such as -2h, got '1772539200000000'"),
        (
            ["--time", "latest", "--topic", "("],
            "Invalid value for '--topic': must be a regular expression (missing ), ",
        ),
    ],
)
def test_misuse_ends_with_2_and_names_the_option(
    arguments: Sequence[str], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["offsets", "--bootstrap-server", "127.0.0.1:1", *arguments]) == 2
    shown = capfd.readouterr()
    assert message in shown.err
    assert shown.out == ""


@dataclass
class Logs(TableSource):
    """A source whose partitions also answer by time: from (timestamp, offset) pairs in the order of offsets."""

    records: dict[TopicPartition, list[tuple[float | None, int]]] = field(default_factory=dict)
    remote_storage: bool = False

    def described(self) -> Metadata:
        known = super().described()
        config = TopicConfig("CreateTime", "delete", None, self.remote_storage)
        return replace(known, topics={name: replace(info, config=config) for name, info in known.topics.items()})

    def look_up_times(self, membership: Membership, rows: Rows, milliseconds: Offsets) -> Answers:
        return answered(membership, rows, milliseconds, lambda key, at: self.failures.get(key) or self._first(key, at))

    def _first(self, key: TopicPartition, at: float) -> Answer:
        for timestamp, offset in self.records.get(key, []):
            if timestamp is None or timestamp >= at:
                return Answer(offset, timestamp)
        return Answer()


def rows(source: Logs, *times: Spec | float) -> list[OffsetRow]:
    """What the source is listed as; a minute past noon is the future."""
    return list(list_offsets("prod", source, source.metadata(), times, ManualClock(NOON)))


def only_row(source: Logs, time: Spec | float) -> tuple[int | None, float | None, object]:
    """Offset, timestamp and reason of the one partition there is."""
    (row,) = rows(source, time)
    return row.offset, None if row.timestamp_ms is None else row.timestamp_ms / 1000, row.reason


def test_a_time_without_a_record_has_a_reason() -> None:
    assert only_row(Logs({KEY: (0, 0, None)}), NOON) == (None, None, State.NEVER_WRITTEN)
    assert only_row(Logs({KEY: (5, 5, None)}), NOON) == (None, None, State.EMPTY)
    assert only_row(Logs({KEY: (0, 5, NOON - 1)}), NOON) == (None, None, Gap.NO_RECORD_SINCE)
    broken = Logs({KEY: (0, 5, NOON)}, failures={KEY: Answer(reason=Reason.UNSUPPORTED_FORMAT)})
    assert only_row(broken, NOON) == (None, None, Reason.UNSUPPORTED_FORMAT)


def test_a_record_found_has_its_own_time() -> None:
    assert only_row(Logs({KEY: (0, 5, NOON)}, records={KEY: [(NOON - 9, 3)]}), NOON - 10) == (3, NOON - 9, None)
    assert only_row(Logs({KEY: (0, 5, NOON)}, records={KEY: [(None, 3)]}), 0.0) == (3, None, State.NO_TIMESTAMP)
    assert only_row(Logs({KEY: (0, 5, NOON)}, records={KEY: [(NOON + 99, 3)]}), 0.0) == (3, NOON + 99, State.FUTURE)


def test_a_largest_timestamp_without_an_offset_has_a_reason() -> None:
    assert only_row(Logs({KEY: (0, 9, NOON)}, pending={KEY}), Spec.MAX_TIMESTAMP) == (None, None, State.PENDING)
    assert only_row(Logs({KEY: (0, 9, None)}), Spec.MAX_TIMESTAMP) == (None, None, State.NO_TIMESTAMP)
    assert only_row(Logs({KEY: (9, 9, None)}), Spec.MAX_TIMESTAMP) == (None, None, State.EMPTY)
    assert only_row(Logs({KEY: (0, 0, None)}), Spec.MAX_TIMESTAMP) == (None, None, State.NEVER_WRITTEN)


def test_the_newest_timestamp_is_there_though_a_look_up_by_time_does_not_find_it() -> None:
    """None proves nothing: there may be a record at or after an earlier time. Its offset may be that of a batch."""
    hidden = Logs({KEY: (6, 9, NOON)})
    assert only_row(hidden, Spec.MAX_TIMESTAMP) == (None, NOON, Reason.HIDDEN)
    assert only_row(hidden, NOON - 5) == (None, None, Reason.HIDDEN)
    assert only_row(hidden, NOON + 5) == (None, None, Gap.NO_RECORD_SINCE)


def test_the_largest_timestamp_is_looked_up_in_the_remote_tier_too() -> None:
    """MAX_TIMESTAMP sees the local disk only (KAFKA-17552): all gone from there, or older records left there."""
    records: list[tuple[float | None, int]] = [(NOON - 5, 0), (NOON - 3, 6), (NOON, 8)]
    gone = Logs({KEY: (0, 9, None)}, records={KEY: records}, pending={KEY}, remote_storage=True)
    assert only_row(gone, Spec.MAX_TIMESTAMP) == (8, NOON, None)
    half = Logs({KEY: (0, 9, NOON - 3)}, records={KEY: records}, remote_storage=True)
    assert only_row(half, Spec.MAX_TIMESTAMP) == (8, NOON, None)
    later: list[tuple[float | None, int]] = [*records, (NOON - 4, 9)]
    late = Logs({KEY: (1, 10, NOON - 3)}, records={KEY: later[1:]}, remote_storage=True)
    assert only_row(late, Spec.MAX_TIMESTAMP) == (None, None, Reason.HIDDEN), "a later one may be hidden"
    known = Logs({KEY: (1, 10, NOON)}, records={KEY: later[1:]}, remote_storage=True)
    assert only_row(known, Spec.MAX_TIMESTAMP) == (8, NOON, None)
    whole = Logs({KEY: (0, 10, NOON - 3)}, records={KEY: later}, remote_storage=True)
    assert only_row(whole, Spec.MAX_TIMESTAMP) == (8, NOON, None), "no record was removed"
    nothing = Logs({KEY: (0, 9, None)}, pending={KEY}, remote_storage=True)
    assert only_row(nothing, Spec.MAX_TIMESTAMP) == (None, None, State.IDLE_IN_TIER)


@pytest.mark.parametrize("pending", [{KEY}, set()])
def test_a_search_that_fails_is_no_timestamp(pending: set[TopicPartition]) -> None:
    """The local disk may hold older records than the tier: the row has the reason and no number."""

    class Tierless(Logs):
        def look_up_times(self, membership: Membership, rows: Rows, milliseconds: Offsets) -> Answers:
            return answered(membership, rows, milliseconds, lambda *_: Answer(reason=Reason.STORAGE_ERROR))

    source = Tierless({KEY: (0, 9, NOON)}, pending=pending, remote_storage=True)
    assert only_row(source, Spec.MAX_TIMESTAMP) == (None, None, Reason.STORAGE_ERROR)


def test_one_partition_that_fails_costs_itself_only() -> None:
    other, gone = TopicPartition("orders", 1), TopicPartition("gone", 0)
    source = Logs(
        {other: (0, 3, NOON), KEY: (0, 5, NOON), gone: (0, 0, None)},
        failures={KEY: Answer(reason=Reason.LEADER_UNREACHABLE)},
        topic_errors={"gone": Reason.UNAUTHORIZED},
    )
    found = rows(source, Spec.LATEST, Spec.EARLIEST)
    assert [(row.topic, row.partition, row.time, row.offset, row.reason) for row in found] == [
        ("gone", None, "latest", None, "unauthorized"),
        ("gone", None, "earliest", None, "unauthorized"),
        ("orders", 0, "latest", 5, None),
        ("orders", 0, "earliest", None, "leader-unreachable"),
        ("orders", 1, "latest", 3, None),
        ("orders", 1, "earliest", 0, None),
    ]


SETTINGS = Settings.model_validate({"clusters": [{"name": "prod", "kafka": {"bootstrap.servers": "host:9092"}}]})


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str, str]]:
    """Lists a source; returns the exit code, and what is written to standard output and error."""

    def write(source: Logs, style: str, *times: Spec | float) -> tuple[int, str, str]:
        monkeypatch.setattr("exporter.commands.offsets.make_source", lambda *_: source)
        out, errors = io.StringIO(), io.StringIO()
        code = list_to(out, errors, SETTINGS.clusters, SETTINGS, times, style=style)
        return code, out.getvalue(), errors.getvalue()

    return write


def test_an_unreadable_partition_gives_exit_code_1(listed: Callable[..., tuple[int, str, str]]) -> None:
    source = Logs({KEY: (0, 5, NOON)}, failures={KEY: Answer(reason=Reason.UNAUTHORIZED)})
    code, text, _ = listed(source, "table", Spec.EARLIEST, Spec.EARLIEST)
    assert (code, text.count("unauthorized")) == (1, 1)


@pytest.mark.usefixtures("without_kafka_python")
def test_without_kafka_python_tiers_are_an_error_of_the_cluster(listed: Callable[..., tuple[int, str, str]]) -> None:
    code, text, errors = listed(Logs({KEY: (0, 5, NOON)}), "json", Spec.LATEST, Spec.LATEST_TIERED)
    assert (code, text) == (1, "[]\n")
    assert errors.startswith("Error: cluster prod: kafka-python is not installed, ")
