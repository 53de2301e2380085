"""Cost of comparing replicas with their source on one real broker: look-ups per partition and cycle, CPU and wall.

Run by ``make bench-replicas``; ``--partitions`` sets the size. One broker stands for both clusters, and copies are
made by hand, so that what moves between two cycles is known. Only comparing is measured, not the polls; look-ups are
not paced, so that the time is what they take.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from exporter.domain.replicas.comparison import ReplicaState
from tests.demo.broker import KAFKA_VERSION, Broker, resolve_kafka
from tests.integration.mirroring import PairTest
from tests.programs import cache_folder
from tests.workbench import Workbench

PER_TOPIC = 100
SINCE = float(round(time.time())) - 3600


@dataclass(frozen=True, slots=True)
class Cycle:
    """One comparison of all partitions: look-ups, client CPU and wall seconds, and partitions by state."""

    name: str
    partitions: int
    lookups: int
    cpu: float
    wall: float
    states: dict[ReplicaState, int]


class Bench:
    """Topics with their copies, whose records are counted."""

    def __init__(self, workbench: Workbench, partitions: int) -> None:
        self._workbench = workbench
        self._written = {"": 0, "east.": 0}
        self._sizes = {
            f"bench-{number:04d}": min(PER_TOPIC, partitions - number * PER_TOPIC)
            for number in range(-(-partitions // PER_TOPIC))
        }
        for topic, size in self._sizes.items():
            workbench.create(topic, size)
            workbench.create(f"east.{topic}", size)
        self._pair = PairTest(workbench.bootstrap, workbench.bootstrap, topics=r"(east\.)?bench-.*")

    def write(self, records: int, *sides: str) -> None:
        """Write so many more records, a second apart, to each partition of the source ("") or the copy ("east.")."""
        for side in sides:
            times = [SINCE + self._written[side] + number for number in range(records)]
            self._workbench.write(
                (f"{side}{topic}", number, at)
                for topic, size in self._sizes.items()
                for number in range(size)
                for at in times
            )
            self._written[side] += records

    def cycle(self, name: str) -> Cycle:
        """Poll both sides, and measure the comparison."""
        self._pair.poll()
        cpu, wall = time.process_time(), time.perf_counter()
        found = self._pair.watch.compare()
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        assert found is not None
        readings = [reading.state for reading in found.readings.values()]
        states = {state: readings.count(state) for state in dict.fromkeys(readings)}
        return Cycle(name, len(readings), found.lookups, cpu, wall, states)

    def close(self) -> None:
        """Take the topics away."""
        for topic in self._sizes:
            self._workbench.delete(topic)
            self._workbench.delete(f"east.{topic}")


def measure(workbench: Workbench, partitions: int) -> list[Cycle]:
    """Return a cycle for each thing that may have happened since the one before."""
    bench = Bench(workbench, partitions)
    bench.write(3, "", "east.")
    cycles = [bench.cycle("first, in step"), bench.cycle("at rest")]
    bench.write(1, "", "east.")
    cycles.append(bench.cycle("all moved, in step"))
    bench.write(5, "")
    cycles += [bench.cycle("all moved, behind"), bench.cycle("behind, at rest")]
    bench.close()
    return cycles


def main() -> None:
    """Print a row for each cycle."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--partitions", type=int, default=2_000)
    partitions: int = parser.parse_args().partitions
    jars = resolve_kafka(cache=cache_folder(), progress=print)
    with tempfile.TemporaryDirectory() as folder, Broker(Path(folder), jars=jars, heap="1g") as broker:
        cycles = measure(Workbench(broker.bootstrap), partitions)
    print(f"{partitions:,} partitions with a replica each, one broker {KAFKA_VERSION}")
    print(f"{'since the last cycle':<22}{'look-ups a partition':>22}{'CPU us a partition':>20}{'wall s':>8}  states")
    for one in cycles:
        states = ", ".join(f"{count} {state}" for state, count in one.states.items())
        cpu = 1e6 * one.cpu / one.partitions
        print(f"{one.name:<22}{one.lookups / one.partitions:>22.2f}{cpu:>20.1f}{one.wall:>8.2f}  {states}")


if __name__ == "__main__":
    main()
