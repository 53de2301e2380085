"""What it costs the exporter to judge a cluster live: ``make bench-judge ARGS="--partitions 100000"``.

No broker: the readings and the published expectations are made here, the expectations in a real Parquet
file. Prints the CPU time (median of rounds; a busy neighbour does not change it) of loading them, of getting
them ready, of scoring with numpy alone, and of judging a whole poll; and the memory that each adds, where Arrow takes
it as in the exporter (``ARROW_DEFAULT_MEMORY_POOL=system``). Then for how long each step of a poll makes a scrape wait.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from exporter.domain.expectations.silence_rules import ExpectationSet, JudgedSilences
from exporter.domain.judging.detection import Detector
from exporter.domain.overrides import Overrides
from exporter.domain.polls.metadata import PartitionInfo, TopicInfo
from exporter.domain.polls.readings import Activity, Reading, State, TopicPartition
from exporter.domain.polls.table import Snapshot
from exporter.domain.verdicts import TopicOverride
from exporter.history.published import Expectations
from exporter.memory import leave_out
from tests.bench.expected import publish
from tests.bench.gil_waits import longest_waits
from tests.bench.process_tree import usage
from tests.snapshots import snapshot_of

PER_TOPIC = 10
NOW = 1_772_539_200.0


def publish_all(history: Path, partitions: int) -> None:
    """Publish promises for so many partitions and their topics."""
    publish(history, "bench", [f"topic-{number:06d}" for number in range(partitions // PER_TOPIC)], PER_TOPIC, NOW)


def readings(partitions: int) -> Snapshot:
    """Return one poll of all of them; each fell silent within the last four days, or is alive."""
    generator = np.random.default_rng(8)
    since = NOW - np.where(generator.random(partitions) < 0.5, 60.0, generator.random(partitions) * 4 * 86_400)
    infos = {number: PartitionInfo(number, (number,), (number,)) for number in range(PER_TOPIC)}
    found = {
        TopicPartition(f"topic-{number // PER_TOPIC:06d}", number % PER_TOPIC): Reading(
            State.OBSERVED, Activity(NOW, NOW - 30, at, at, polls_good=1000), number % PER_TOPIC, 0, 10, at
        )
        for number, at in enumerate(since.tolist())
    }
    topics = {f"topic-{number:06d}": TopicInfo("id", infos) for number in range(partitions // PER_TOPIC)}
    return snapshot_of(found, topics, cluster="bench", taken_at=NOW)


def overrides(partitions: int) -> Overrides:
    """Return an override for each topic, of 50 different limits."""
    topics = range(partitions // PER_TOPIC)
    return Overrides(
        [TopicOverride(f"topic-{number:06d}", max_silence_seconds=3600.0 * (1 + number % 50)) for number in topics]
    )


def resident() -> float:
    """Return the memory of this process in MiB."""
    return usage(os.getpid()).rss_mib


def measured(rounds: int, work: Callable[[], object]) -> float:
    """Return the CPU seconds of one call, the median of so many."""
    spent = []
    for _ in range(rounds):
        began = time.process_time()
        work()
        spent.append(time.process_time() - began)
    return statistics.median(spent)


def main() -> None:
    """Print the table, and save it as JSON where requested."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=100_000, help="how many (multiple of 10)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds a median is taken over")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    count, rounds = arguments.partitions, arguments.rounds
    leave_out("pandas")
    with tempfile.TemporaryDirectory() as folder:
        # In a process of its own: what that needs is not the exporter's.
        publishing = multiprocessing.get_context("spawn").Process(target=publish_all, args=(Path(folder), count))
        publishing.start()
        publishing.join()
        before = resident()
        expectations = Expectations(Path(folder))
        load = measured(1, expectations.refresh)
    if expectations.published is None:
        raise SystemExit(f"the expectations could not be read: {expectations.problem}")
    loaded = resident()
    made: list[ExpectationSet] = []
    rows = expectations.published.rows.of_cluster("bench")
    ready = measured(1, lambda: made.append(ExpectationSet(rows)))
    ready_mib, peak = resident(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    snapshot = readings(count)
    expectation_set = made[0]
    since = np.array([reading.activity.silent_since for reading in snapshot.readings.values()], dtype=np.float64)
    silences = JudgedSilences(np.flatnonzero(rows.partition >= 0), since, np.full(count, NOW))
    detector, configured = Detector(expectation_set), overrides(count)
    figures = {
        "load expectations": load,
        "get them ready": ready,
        "score with numpy": measured(rounds, lambda: expectation_set.judge(silences, NOW)),
        "judge a whole poll": measured(rounds, lambda: Detector(expectation_set).assess(snapshot, NOW)),
        "every topic overridden": measured(
            rounds, lambda: detector.assess(snapshot, NOW, lambda topic: configured.of("bench", topic, NOW))
        ),
    }
    print(f"{count} partitions and {count // PER_TOPIC} topics, CPU time, median of {rounds} rounds")
    for step, seconds in figures.items():
        print(f"{step:<24}{seconds * 1000:>9.0f} ms")
    print(
        f"expectations take {loaded - before:.0f} MiB, {ready_mib - loaded:.0f} MiB more when ready, "
        f"{peak - before:.0f} MiB for a moment"
    )
    holds = longest_waits(snapshot, expectations.published)
    print(
        "a scrape beside a step waits at most: " + ", ".join(f"{step} {at * 1000:.0f} ms" for step, at in holds.items())
    )
    if arguments.json:
        mib = {"loaded": loaded - before, "ready": ready_mib - loaded, "peak": peak - before}
        content = {"partitions": count, "seconds": figures, "mib": mib, "holds": holds}
        arguments.json.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
