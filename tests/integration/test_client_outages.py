"""Outages of a real broker, in which librdkafka now and then ends its process."""

from __future__ import annotations

from pathlib import Path

from exporter.kafka.process import Restart
from tests.bench.outage import survive


def test_an_exporter_outlives_outages_and_kills_of_its_client(kafka_jars: Path, tmp_path: Path) -> None:
    """Killed, and frozen for 21 s: after each outage it shows every series again, and no verdict is false.

    An outage does not always make librdkafka abort: a kill of the client surely ends it.
    """
    survived = survive(kafka_jars, tmp_path, outages=2, kills=1, exporters=1)
    assert (survived.disturbances, survived.whole_after, survived.false_verdicts) == (3, 3, 0)
    assert set(survived.polls) <= {"ok", "cluster-unreachable", "client-failed"}
    assert survived.restarts[Restart.ENDED] >= 1
    assert set(survived.restarts) <= {Restart.ENDED, Restart.FAILING, Restart.HUNG}
