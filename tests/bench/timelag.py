"""What time lags cost and how true they are: look-ups first and later, and errors against records really read.

Run by ``make bench-timelag``, on one real broker. "Linear" is what a monitor tells that knows the two ends of a log
and takes the rate in between for even.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from exporter.domain.groups.sweep import GroupSweep
from exporter.domain.polls.readings import TopicPartition
from tests.demo.broker import KAFKA_VERSION, Broker, resolve_kafka
from tests.groups import groups_of
from tests.integration.lagging import Exporter, commit, read
from tests.timelog import Log
from tests.workbench import Workbench

PER_TOPIC = 100
SWEEPS = 12
SWEEP_SECONDS = 60.0
HOUR = 3600.0


def spread(values: Sequence[float], digits: int = 1) -> str:
    """Median, 95th percentile and largest."""
    ordered = sorted(values)
    picked = (ordered[len(ordered) // 2], ordered[math.ceil(0.95 * len(ordered)) - 1], ordered[-1])
    return "".join(f"{value:>11,.{digits}f}" for value in picked)


def by_time(sweep: GroupSweep) -> int:
    """Look-ups of times in a sweep."""
    return sweep.lookups.get("by-time", 0)


def first_sweep(workbench: Workbench, partitions: int, records: int) -> None:
    """Print what the first sweep of a process costs: one group, somewhere in each partition."""
    source, now = random.Random(1), time.time()
    topics = [f"cold-{number:04d}" for number in range(partitions // PER_TOPIC)]
    for topic in topics:
        workbench.create(topic, PER_TOPIC)

    def written() -> Iterator[tuple[str, int, float]]:
        for index in range(records):
            for topic in topics:
                for partition in range(PER_TOPIC):
                    yield topic, partition, now - (records - index - source.random()) * 7 * 24 * HOUR / records

    workbench.write(written())
    for topic in topics:
        commit(workbench, "cold", {TopicPartition(topic, each): source.randrange(records) for each in range(PER_TOPIC)})
    exporter = Exporter(workbench.bootstrap, "cold.*", tolerance=5.0)
    exporter.sweep()
    exporter.close()
    exporter = Exporter(workbench.bootstrap, "cold.*", tolerance=5.0)
    cpu = time.process_time()
    sweep = exporter.sweep()
    cpu = time.process_time() - cpu
    lags = [each.time_lag for each in groups_of(sweep)["cold"].partitions.values()]
    assert all(lags)
    bounds = [lag.error_bound for lag in lags if lag]
    shares = [100 * lag.error_bound / max(lag.seconds, 5.0) for lag in lags if lag]
    print(f"\nFirst sweep: {partitions:,} partitions of {records} records over 7 days, one group behind in each")
    print(f"  look-ups of times, each partition  {by_time(sweep) / partitions:.2f}")
    print(f"  the whole sweep                    {sweep.duration_seconds:.2f} s, client CPU with its poll {cpu:.2f} s")
    print(f"  error bound, s: median, p95, max {spread(bounds)}")
    print(f"  error bound, % of the lag        {spread(shares)}")
    exporter.close()


def later_sweeps(workbench: Workbench, partitions: int) -> None:
    """Print what each further sweep costs, of groups that keep up, are behind, or stand still."""
    topic, source = "steady", random.Random(2)
    workbench.create(topic, partitions)
    begin = time.time() - 4 * HOUR
    counts = [0] * partitions

    def written(since: float, until: float) -> Iterator[tuple[str, int, float]]:
        for second in range(round(until - since)):
            for partition in range(partitions):
                counts[partition] += 1
                yield topic, partition, since + second + source.random()

    workbench.write(written(begin, begin + HOUR))
    print(f"\nLater sweeps: {partitions} partitions of a record a second, a sweep each {SWEEP_SECONDS:.0f} s")
    print("  look-ups of times, each partition and sweep")
    for group, behind in (("steady-keeps-up", 5), ("steady-half-an-hour-behind", 1800), ("steady-stands-still", None)):
        exporter = Exporter(workbench.bootstrap, topic, tolerance=5.0, groups=group)
        lookups = []
        still = [count - 600 for count in counts]
        for _ in range(SWEEPS):
            since = begin + max(counts)
            workbench.write(written(since, since + SWEEP_SECONDS))
            exporter.ahead = since + SWEEP_SECONDS - time.time()
            at = still if behind is None else [count - behind for count in counts]
            commit(workbench, group, {TopicPartition(topic, each): at[each] for each in range(partitions)})
            lookups.append(by_time(exporter.sweep()) / partitions)
        later = lookups[1:]
        print(f"  {group.removeprefix('steady-'):<24} first {lookups[0]:.2f}, later {sum(later) / len(later):.2f}")
        exporter.close()


def bursts(now: float) -> list[float]:
    """Some thousand records within a minute, every six hours or so."""
    source = random.Random(3)
    times: list[float] = []
    moment = now - 5 * 24 * HOUR
    while moment < now - HOUR:
        times += [moment + source.random() * 60 for _ in range(source.randrange(500, 3000))]
        moment += source.uniform(2, 10) * HOUR
    return sorted(times)


def slow(now: float) -> list[float]:
    """A record an hour or so, for a month."""
    source = random.Random(4)
    times = [now - 30 * 24 * HOUR]
    while times[-1] < now:
        times.append(times[-1] + source.expovariate(1 / HOUR))
    return times[:-1]


def nights(now: float) -> list[float]:
    """A record every ten seconds by day, and none from 20 to 8 o'clock."""
    moments = (now - 5 * 24 * HOUR + index * 10 for index in range(5 * 24 * 360))
    return [moment for moment in moments if 8 <= moment / HOUR % 24 < 20]


def steady(now: float) -> list[float]:
    """A record a second or so for two hours."""
    source = random.Random(6)
    return sorted(now - source.random() * 2 * HOUR for _ in range(7200))


def linear(log: Log, committed: int, now: float) -> float:
    """The time lag, were the rate even between the first record and the last."""
    (first, oldest), (last, newest) = log.records[0], log.records[-1]
    share = (committed - first) / max(1, last - first)
    return now - (oldest + share * (newest - oldest)) / 1000


def errors(workbench: Workbench, offsets: int) -> None:
    """Print how far time lags are from the timestamps of the records really read."""
    now = time.time()
    kinds = {"bursts": bursts(now), "slow": slow(now), "nights": nights(now), "steady": steady(now)}
    print(f"\nErrors at {offsets} committed offsets: median, p95 and largest in seconds, then in % of the lag")
    for kind, times in kinds.items():
        topic = f"errors-{kind}"
        workbench.create(topic)
        workbench.write((topic, 0, moment) for moment in times)
        log = read(workbench, topic)
        source = random.Random(5)
        groups = {f"{topic}-{number}": source.randrange(len(times)) for number in range(offsets)}
        for group, offset in groups.items():
            commit(workbench, group, {topic: offset})
        exporter = Exporter(workbench.bootstrap, f"{topic}.*", tolerance=5.0)
        sweep = exporter.sweep()
        exporter.close()
        off, bounds, guessed, lags, outside = [], [], [], [], 0
        for name, offset in groups.items():
            found = groups_of(sweep)[name]
            lag, truth = found.partitions[TopicPartition(topic, 0)].time_lag, log.truth(offset)
            assert lag is not None and truth is not None
            lags.append(found.read_at - truth / 1000)
            off.append(abs(lag.seconds - lags[-1]))
            bounds.append(lag.error_bound)
            outside += off[-1] > lag.error_bound + 0.001
            guessed.append(abs(linear(log, offset, found.read_at) - lags[-1]))
        print(f"  {kind}: {len(times):,} records, look-ups of times {by_time(sweep)}, outside the bound {outside}")
        for what, values in (("error", off), ("error bound", bounds), ("error of linear", guessed)):
            shares = [100 * value / seconds for value, seconds in zip(values, lags, strict=True)]
            print(f"    {what:<16}{spread(values)}   {spread(shares, 2)}")


def main() -> None:
    """Print costs and errors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=1000, help="partitions of the first look (multiple of 100)")
    parser.add_argument("--records", type=int, default=200, help="records in each of them")
    parser.add_argument("--offsets", type=int, default=200, help="committed offsets whose errors are measured")
    arguments = parser.parse_args()
    cache = Path.home() / ".cache" / "topic-liveness"
    jars = resolve_kafka(cache=cache, progress=lambda line: print(line, file=sys.stderr))
    with tempfile.TemporaryDirectory() as folder, Broker(Path(folder), jars=jars, heap="1g") as broker:
        workbench = Workbench(broker.bootstrap)
        print(
            f"One broker, Kafka {KAFKA_VERSION}; load of this machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs"
        )
        first_sweep(workbench, arguments.partitions, arguments.records)
        later_sweeps(workbench, PER_TOPIC)
        errors(workbench, arguments.offsets)


if __name__ == "__main__":
    main()
