"""Outages of a real broker, in which librdkafka now and then ends its process."""

from __future__ import annotations

from pathlib import Path

from exporter.kafka.process import Restart
from tests.bench.outage import survive


def test_polls_and_sweeps_outlive_outages(kafka_jars: Path, tmp_path: Path) -> None:
    """Stopped, killed, frozen for 21 s: after each outage both are good again, and no poll ends in an error of ours.

    An outage does not always make librdkafka abort: test_client_restarts.py has a client that surely does.
    """
    survived = survive(kafka_jars, tmp_path / "broker", outages=3)
    assert survived.well_after == 3
    assert set(survived.polls) <= {"ok", "cluster-unreachable", "client-failed"}
    assert set(survived.restarts) <= {Restart.ENDED, Restart.FAILING, Restart.HUNG}
