"""Polls of a story by the exporter's own poller and history."""

from collections.abc import Mapping

from exporter.collectors.poller import Poller
from exporter.domain.polls.readings import TopicPartition
from exporter.history.cluster_states import ClusterState
from exporter.history.recorder import History
from exporter.history.spool import Spool
from exporter.metrics.self_metrics import SelfMetrics
from tests.spark.story import World
from tests.unit.readings import ManualClock, TableSource


def run_exporter(
    world: World,
    exporter: str,
    since: float,
    until: float,
    *,
    pace: float = 600.0,
    set_by: float = 0.0,
    steps: Mapping[float, float] | None = None,
    last: ClusterState | None = None,
) -> None:
    """Let an exporter look from ``since`` on, ``pace`` seconds apart; ``last`` is what an earlier process left.

    Moments are those of a right clock; that of the exporter is ``set_by`` ahead and is set by so many seconds at
    each of the ``steps``.
    """
    clock, source = ManualClock(since, set_by), TableSource(topic_ids={name: f"id-{name}" for name, _ in world.logs})
    # Polls of days follow each other in seconds here, faster than the thread that writes them on an idle machine.
    given = {"window_seconds": 1800.0, "poll_interval_seconds": pace, "kept_seconds": 1e9}
    spool, own = Spool(world.history, exporter), SelfMetrics("0")
    history = History(world.cluster, spool, exporter=exporter, own=own, last=last, **given)
    poller = Poller(world.cluster, source, [history], clock, state=last)
    left = dict(steps or {})
    while clock.time < until:
        for when in [when for when in left if when <= clock.time]:
            clock.set_by += left.pop(when)
        for (topic, partition), log in world.logs.items():
            source.offsets[TopicPartition(topic, partition)] = (0, log.end(clock.time), None)
        poller.poll()
        clock.time += pace
    history.flush(clock.now())
