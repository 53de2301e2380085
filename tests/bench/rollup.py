"""What a rollup costs: ``make bench-rollup ARGS="--partitions 2000 20000"``.

A seeded fleet of several rhythms becomes spool files, and the job runs on them as users run it: a process of
its own with its default settings, over the whole history and then over one more day. Prints time, CPU and the work of
Spark's tasks by stage, the largest memory of the job, its JVM and its workers together, and what the tables and the
published expectations take. Of several sizes, lengths of the past or ways of telling it a last table holds all against
each other. Fails where the job does, and where rows or expectations are missing.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from exporter.domain.history.rows import Source
from exporter.domain.learning.slots import BY_FIVE, BY_HOUR
from tests.bench.detection.fleet import HOURS_A_WEEK, Fleet, Stream
from tests.bench.detection.product import write_spool
from tests.bench.detection.streams import KINDS, MONDAY, Clock
from tests.bench.rollup_run import CheckError, Run, Spent, active_hours, in_fives, on_disk, run, table_size

RHYTHMS = ("steady", "office hours", "nightly batch", "hourly", "daily", "weekly", "bursty", "rare")
"""Every topic has one of these; they differ in how many hours are active: from nearly all to few."""

PER_TOPIC = 12
TOPICS_A_FILE = 50
DAY = 24.0
POLLED_WEEKS = 3
"""The weeks of history that ``--polled`` measures twice: once written by a backfill, once by polls.

From so many weeks on streams are judged in slots of five minutes.
"""


@dataclass(frozen=True, slots=True)
class Case:
    """So many partitions and weeks of history; the last ``polled_weeks`` of them, and the day after, are from polls."""

    partitions: int
    weeks: int
    polled_weeks: int
    overrides: int = 0

    def __str__(self) -> str:
        polled = f", {self.polled_weeks} of them polled" if self.polled_weeks else ""
        overrides = f", {self.overrides} overrides" if self.overrides else ""
        return f"{self.partitions} partitions, {self.weeks} weeks{polled}{overrides}"

    def options(self, folder: Path) -> list[str]:
        """Return the option for overrides: patterns that fit no topic, so that each topic is held against all."""
        if not self.overrides:
            return []
        file = folder / "overrides.json"
        file.write_text(
            json.dumps([{"topics": f"no-{number}-.*", "retired": True} for number in range(self.overrides)])
        )
        return ["--overrides", f"@{file}"]


@dataclass(frozen=True, slots=True)
class Measured:
    """Both runs of a case, the MiB of its spool files, and the load of the machine as they ended."""

    case: Case
    runs: Sequence[Run]
    spool_mib: float
    load: float


def fleets(partitions: int, weeks: int, seed: int) -> Iterator[Fleet]:
    """Make so many partitions, twelve a topic, and so many topics at a time."""
    clock = Clock(weeks)
    for first in range(0, partitions, PER_TOPIC * TOPICS_A_FILE):
        random = np.random.default_rng([seed, first])
        numbers = range(first, min(partitions, first + PER_TOPIC * TOPICS_A_FILE))
        yield Fleet("rollup", MONDAY, weeks, [_stream(number, random, clock) for number in numbers])


def _stream(number: int, random: np.random.Generator, clock: Clock) -> Stream:
    topic, partition = divmod(number, PER_TOPIC)
    kind = RHYTHMS[topic % len(RHYTHMS)]
    return Stream(f"{kind.replace(' ', '-')}-{topic:05}", partition, kind, KINDS[kind](random, clock)[0])


def write_history(history: Path, later: Path, partitions: int, weeks: int, polled_weeks: int) -> tuple[int, int]:
    """Write so many weeks of spool files, and those of the next day into ``later``; return their windows.

    The last ``polled_weeks`` of them, and then the day too, are as polls write them: windows and coverage of five
    minutes, and an inventory a day. The rest is as a backfill writes it: windows of an hour.
    """
    until, coarse = float(weeks * HOURS_A_WEEK), float((weeks - polled_weeks) * HOURS_A_WEEK)
    slot, source = (BY_FIVE.hours, Source.POLL) if polled_weeks else (BY_HOUR.hours, Source.BACKFILL)
    before = day = 0
    for part, fleet in enumerate(fleets(partitions, weeks + 1, seed=4)):
        before += write_spool(fleet, history, until=coarse, part=part) if coarse else 0
        if polled_weeks:
            polled = 2 * 10**6 + part
            before += write_spool(fleet, history, since=coarse, until=until, part=polled, slot=slot, source=source)
        day += write_spool(
            fleet, later, since=until, until=until + DAY, every=DAY, part=10**6 + part, slot=slot, source=source
        )
    return before, day


def measure(case: Case) -> Measured:
    """Run the job on all weeks and on one more day."""
    weeks = case.weeks
    streams = case.partitions + -(-case.partitions // PER_TOPIC)
    with tempfile.TemporaryDirectory(prefix="bench-rollup-") as folder:
        history, later = Path(folder, "history"), Path(folder, "later")
        began = time.monotonic()
        before, day = write_history(history, later, case.partitions, weeks, case.polled_weeks)
        spool = on_disk(history)
        print(
            f"{case}: {before + day} windows written in {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True
        )
        end = MONDAY + weeks * HOURS_A_WEEK * 3600.0
        more = case.options(Path(folder))
        runs = [run(f"{weeks} weeks", history, end, before, streams, more)]
        _all_arrived(history, before, case)
        for path in sorted(later.rglob("*.parquet")):
            path.rename(history / path.relative_to(later))
        runs.append(run("one more day", history, end + DAY * 3600.0, day, streams, more))
        _all_arrived(history, before + day, case)
    return Measured(case, runs, spool, os.getloadavg()[0])


def _all_arrived(history: Path, windows: int, case: Case) -> None:
    found = {"windows": table_size(history / "tables" / "windows").rows}
    if not case.polled_weeks:
        found["active hours"] = active_hours(history / "tables" / "daily")
    if set(found.values()) != {windows}:
        raise CheckError(f"{windows} windows were written in all, but the tables have {found}")
    if case.polled_weeks >= POLLED_WEEKS and not in_fives(history):
        raise CheckError("no stream is judged in slots of five minutes")


def _row(name: str, values: Iterable[str], width: int = 12) -> str:
    return f"{name:<14}" + "".join(f"{value:>{width}}" for value in values)


_WORK = ("wall s", "CPU s", "jobs", "tasks", "read", "shuffled", "spilled", "written")


def as_text(measured: Measured) -> str:
    """Return the figures of a case: a table of each run, and the sizes after it."""
    runs = measured.runs
    lines = [f"{measured.case}: {runs[0].windows} windows in {measured.spool_mib:.0f} MiB of spool"]
    for one in runs:
        lines += ["", _row(one.name, _WORK) + "   (MiB of Spark's tasks)"]
        lines += [_row(stage, _work_of(spent)) for stage, spent in one.stages.items()]
        lines.append(_row("in all", _work_of(one.in_all)))
        lines.append(f"peak memory: RSS {one.peak_mib:.0f} MiB, PSS {one.peak_pss_mib:.0f} MiB")
    for one in runs:
        lines += ["", f"{'after ' + one.name:<24}{'rows':>12}{'files':>8}{'MiB':>10}{'MiB on disk':>14}"]
        for name, size in one.tables.items():
            lines.append(f"{name:<24}{size.rows:>12}{size.files:>8}{size.mib:>10.1f}{size.on_disk_mib:>14.1f}")
    return "\n".join(lines)


def _work_of(spent: Spent) -> Iterator[str]:
    work = spent.work
    yield from (f"{spent.wall:.1f}", f"{spent.cpu:.1f}", str(work.jobs), str(work.tasks))
    yield from (f"{mib:.1f}" for mib in (work.read, work.shuffled, work.spilled, work.written))


def compared(all_of_them: Sequence[Measured]) -> str:
    """Return a table of several cases, and how they stand to the first of them."""
    lines = [
        (
            f"{'partitions':>10}{'weeks':>7}{'polled':>7}  {'run':<14}{'wall s':>8}{'CPU s':>8}"
            f"{'RSS MiB':>9}{'PSS MiB':>9}{'read MiB':>10}{'written MiB':>13}{'load':>6}"
        )
    ]
    for one in all_of_them:
        case = one.case
        for each in one.runs:
            spent = each.in_all
            lines.append(
                f"{case.partitions:>10}{case.weeks:>7}{case.polled_weeks:>7}  {each.name:<14}{spent.wall:>8.1f}"
                f"{spent.cpu:>8.1f}{each.peak_mib:>9.0f}{each.peak_pss_mib:>9.0f}{spent.work.read:>10.1f}"
                f"{spent.work.written:>13.1f}{one.load:>6.1f}"
            )
    for before, after in itertools.pairwise(all_of_them):
        lines += _against(before, after)
    return "\n".join(lines)


def _against(before: Measured, after: Measured) -> Iterator[str]:
    """How two cases stand to each other that differ in one thing."""
    ratios = [_ratios(*both) for both in zip(before.runs, after.runs, strict=True)]
    times = after.case.partitions / before.case.partitions
    for (wall, cpu, rss, pss), each in zip(ratios, after.runs, strict=True):
        text = f"wall x {wall:.2f}, CPU x {cpu:.2f}, RSS x {rss:.2f}, PSS x {pss:.2f}"
        yield f"{before.case} -> {after.case}, {each.name}: {text}"
        if times > 1:
            doubled = (ratio ** (1 / math.log2(times)) for ratio in (wall, cpu))
            yield "    twice the partitions: wall x {:.2f}, CPU x {:.2f}".format(*doubled)


def _ratios(before: Run, after: Run) -> tuple[float, float, float, float]:
    return (
        after.in_all.wall / before.in_all.wall,
        after.in_all.cpu / before.in_all.cpu,
        after.peak_mib / before.peak_mib,
        after.peak_pss_mib / before.peak_pss_mib,
    )


def main() -> int:
    """Print the tables, and save them as JSON where requested."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, nargs="+", default=[20_000], help="how many, twelve a topic")
    parser.add_argument(
        "--weeks", type=int, nargs="+", default=[8], help="weeks of history before the one more day, as 2 8 26"
    )
    parser.add_argument(
        "--polled-weeks",
        type=int,
        default=0,
        help="how many of the last of them, and the day after, are in windows of five minutes from polls",
    )
    parser.add_argument(
        "--polled", action="store_true", help=f"{POLLED_WEEKS} weeks, written by a backfill and then by polls"
    )
    parser.add_argument(
        "--overrides",
        type=int,
        default=0,
        metavar="N",
        help="also each case with so many overrides, which fit no topic",
    )
    parser.add_argument("--save", type=Path, metavar="FILE", help="also write the figures to this file, as JSON")
    options = parser.parse_args()
    spans = [(POLLED_WEEKS, 0), (POLLED_WEEKS, POLLED_WEEKS)]
    if not options.polled:
        spans = [(weeks, options.polled_weeks) for weeks in options.weeks]
    several = sorted({0, options.overrides})
    cases = [
        Case(partitions, *weeks, overrides)
        for partitions in options.partitions
        for weeks in spans
        for overrides in several
    ]
    found: list[Measured] = []
    try:
        for case in cases:
            found.append(measure(case))
            print(f"\n{as_text(found[-1])}\n", flush=True)
            if options.save:
                options.save.write_text(json.dumps([asdict(one) for one in found], indent=1) + "\n", encoding="utf-8")
    except CheckError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    if len(found) > 1:
        print(compared(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
