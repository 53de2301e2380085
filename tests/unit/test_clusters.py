"""Several clusters in one process know nothing of each other's troubles."""

import io
import logging
import re
import time
from pathlib import Path

import pytest

from exporter.app import once
from exporter.collectors.poller import Poller
from exporter.domain.polls.metadata import Metadata
from exporter.domain.polls.readings import PollFailure, Reason, TopicPartition
from exporter.domain.polls.table import Snapshot
from exporter.domain.ports import SourceError
from exporter.settings.schema import Settings
from tests.demo.broker import free_port
from tests.monitors import monitor_of
from tests.unit.readings import Collected, ManualClock, TableSource

ORDERS = TopicPartition("orders", 0)


class Broken(TableSource):
    """A source in which something is wrong that nobody thought of."""

    def described(self) -> Metadata:
        raise ZeroDivisionError("secret-of-a-password")


class Deaf(Collected):
    def accept(self, snapshot: Snapshot) -> None:
        raise KeyError(snapshot.cluster)


class Pair:
    """Two clusters, ``good`` and ``bad``, watched by one monitor."""

    def __init__(self, bad: TableSource | None = None) -> None:
        self.clock = ManualClock()
        own = {"good": {}, "bad": {"poll": {"missed_polls": 1}}}
        self.monitor = monitor_of(self.clock, own, metrics={"partition": ["current_offset"]})
        self.sources = {"good": TableSource({ORDERS: (0, 7, 1e6)}), "bad": bad or TableSource({ORDERS: (0, 5, 1e6)})}
        self.pollers = {name: Poller(name, source, [self.monitor], self.clock) for name, source in self.sources.items()}

    def poll(self, *names: str) -> None:
        self.clock.time += 30
        for name in names or self.pollers:
            self.pollers[name].poll()

    def series(self, cluster: str) -> set[str]:
        lines = self.monitor.metrics().decode().splitlines()
        wanted = re.compile(rf'(kafka_|topic_liveness_(cluster_up|partitions)).*kafka_cluster="{cluster}"')
        return {line for line in lines if wanted.match(line) and "staleness" not in line}


@pytest.mark.parametrize(
    "bad", [Broken(), TableSource(error=SourceError(Reason.AUTHENTICATION_FAILED, "refused")), None], ids=repr
)
def test_one_bad_cluster_changes_no_line_of_another(bad: TableSource | None) -> None:
    alone, beside = Pair(), Pair(bad)
    for pair in (alone, beside):
        pair.poll()
        pair.sources["good"].offsets[ORDERS] = (0, 9, 1e6)
        pair.poll()
    assert beside.series("good") == alone.series("good")
    assert 'kafka_topic_partition_current_offset{kafka_cluster="good",topic="orders",partition="0"} 9' in (
        beside.series("good")
    )


def test_an_error_of_this_program_is_a_failed_poll(caplog: pytest.LogCaptureFixture) -> None:
    pair = Pair(Broken())
    pair.poll()
    text = pair.monitor.metrics().decode()
    assert 'topic_liveness_polls_total{kafka_cluster="bad",outcome="other-error"} 1.0' in text
    shown = next(one.problem for one in pair.monitor.status().clusters if one.name == "bad")
    assert shown is not None
    assert shown.startswith("other-error: an internal error (ZeroDivisionError); the log has its traceback")
    assert [record.exc_info is not None for record in caplog.records if record.levelno == logging.ERROR] == [True]


def test_a_sink_that_fails_costs_no_other_sink() -> None:
    deaf, well = Deaf(), Collected()
    outcome = Poller("prod", TableSource({ORDERS: (0, 5, 1e6)}), [deaf, well], ManualClock()).poll()
    assert isinstance(outcome, PollFailure)
    assert deaf.failures == [outcome]
    assert (len(well.snapshots), well.failures) == (1, [])


def test_once_waits_for_the_slowest_cluster_and_not_for_the_sum(tmp_path: Path) -> None:
    names = [f"c-{number}" for number in range(6)]
    clusters = [{"name": name, "kafka": {"bootstrap.servers": f"127.0.0.1:{free_port()}"}} for name in names]
    history, poll = {"folder": str(tmp_path)}, {"request_timeout": "4s"}
    settings = Settings.model_validate({"clusters": clusters, "poll": poll, "history": history})
    out, began = io.StringIO(), time.monotonic()
    assert once(settings, out) == 1
    assert time.monotonic() - began < 20.0, "one after the other takes 24 s"
    assert out.getvalue().count('outcome="cluster-unreachable"} 1.0') == 6
