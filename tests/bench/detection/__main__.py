"""Print the bench of detection: ``make bench-detection``, for a set of one's own ``ARGS="--events FILE"``."""

from __future__ import annotations

import argparse
import functools
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from spark_rollups.session import start_session
from tests.bench.detection.defaults import OUTAGES, SIZES, accepted_table, defaults_of, defaults_tables
from tests.bench.detection.docs import PAGE, rendered
from tests.bench.detection.events import EventsError, events
from tests.bench.detection.few_gaps import few_gaps_tables, rules_table
from tests.bench.detection.fleet import Fleet, partitions, topics
from tests.bench.detection.holiday import holiday_table
from tests.bench.detection.measure import NOMINAL, across_sets
from tests.bench.detection.measured import Measured, NothingJudgedError, measure
from tests.bench.detection.one_kind import kind_table
from tests.bench.detection.outage_rates import outage_rates_table
from tests.bench.detection.prior import prior_table
from tests.bench.detection.product import Published, replayed, write_spool
from tests.bench.detection.routes import MissingSetError, aircraft, routes
from tests.bench.detection.silences import FIRST_WEEK
from tests.bench.detection.streams import KINDS, SEED, generate
from tests.bench.detection.table import Rows, as_text
from tests.bench.detection.typical import typical_table

SETS: dict[str, Callable[[], Fleet]] = {"generator": generate, "routes": routes, "aircraft": aircraft}


def main() -> int:
    """Print the tables of the chosen sets; with --save put them into README.md."""
    parser = argparse.ArgumentParser(prog="make bench-detection ARGS=...", description=__doc__)
    parser.add_argument("--events", type=Path, help="a CSV of stream_id,unix_ts to judge by instead of the sets here")
    parser.add_argument(
        "--sets", nargs="+", choices=list(SETS), default=["generator", "routes"], help="default: generator routes"
    )
    parser.add_argument("--topics", type=int, metavar="N", default=30, help="of each kind in the generator, 30")
    parser.add_argument("--seed", type=int, metavar="N", default=SEED, help=f"of the generator, {SEED}")
    parser.add_argument("--product", action="store_true", help="run the Spark job and judge by what it publishes too")
    parser.add_argument(
        "--as-of-every",
        type=int,
        metavar="N",
        default=8,
        help="with --product: run it as of the end of every N-th week too, and compare; 8 by default, 1 takes long",
    )
    parser.add_argument("--save", action="store_true", help=f"write the tables of {PAGE.name}")
    parser.add_argument(
        "--defaults",
        type=int,
        nargs="*",
        metavar="TOPICS",
        help=f"print only what the default settings give on generated fleets of so many topics, {SIZES} by default",
    )
    parser.add_argument(
        "--outages",
        choices=("with", "without", "both"),
        default="both",
        help="with --defaults: only fleets of which a tenth of the topics has an outage, or only those without; both",
    )
    parser.add_argument(
        "--accepted",
        type=float,
        nargs="+",
        metavar="N",
        help="with --defaults: print what other settings give: false alarms per 1,000 topic-weeks that are accepted",
    )
    parser.add_argument(
        "--outages-a-year",
        type=float,
        nargs="+",
        metavar="N",
        help="with --defaults: print how high thresholds are where each topic has so many repaired outages a year, "
        "and how soon deaths are found then",
    )
    parser.add_argument(
        "--typical", action="store_true", help="print only how soon twelve typical topics are late, suspect and dead"
    )
    parser.add_argument(
        "--few", action="store_true", help="print only what is dead by few gaps, and how much of it is written again"
    )
    parser.add_argument(
        "--holiday",
        type=int,
        metavar="TOPICS",
        help="print only what a holiday makes dead in a fleet of so many topics",
    )
    parser.add_argument(
        "--prior",
        action="store_true",
        help="print only the prior of thresholds that generated fleets and routes make, and the shipped one",
    )
    parser.add_argument(
        "--kinds",
        nargs="+",
        choices=list(KINDS),
        metavar="KIND",
        help=f"print only how soon streams of one kind are dead, by thresholds fitted to it: {', '.join(KINDS)}",
    )
    parser.add_argument(
        "--seeds",
        type=int,
        nargs="+",
        metavar="N",
        help="with --defaults, --kinds, --holiday and --prior: fleets of these seeds, instead of --seed",
    )
    options = parser.parse_args()
    alone = _alone(options)
    if alone is not None:
        for title, rows in alone:
            print(f"{title}\n{as_text(rows)}".lstrip(), flush=True)
        return 0
    try:
        fleets = (
            [events(options.events, print)]
            if options.events
            else [_fleet(name, options.topics, options.seed) for name in options.sets]
        )
    except (EventsError, MissingSetError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    found: dict[tuple[str, str], Measured] = {}
    for fleet in fleets:
        published = _published(fleet, options.as_of_every) if options.product else None
        for units in (topics(fleet), partitions(fleet)):
            if not len(units):
                continue
            try:
                one = found[fleet.name, units.level] = measure(units, published)
            except NothingJudgedError as error:
                print(f"Error: {error}", file=sys.stderr)
                return 2
            for title, rows in one.tables():
                print(f"\n{title}\n{as_text(rows)}", flush=True)
    carried = transfer([one for (_, level), one in found.items() if level == "topic"])
    if len(carried) > 1:
        print(f"\n{TRANSFER}\n{as_text(carried)}")
    if options.save:
        _save(found.values(), carried)
    return 0


def _alone(options: argparse.Namespace) -> Sequence[tuple[str, Rows]] | None:
    """Return the tables of an option that asks for these alone, by their titles; None without one."""
    seeds = options.seeds or [options.seed]
    if options.holiday is not None:
        title = "Dead by a holiday of 2 days: in all (on its first day, on the next two, later)"
        return [(title, holiday_table(options.holiday, seeds))]
    if options.prior:
        fleets = {
            f"generator, seed {seed}, {name} outages": generate(options.topics, seed=seed, outages=outages[0])
            for seed in seeds
            for name, outages in (("with", OUTAGES["with"]), ("without", OUTAGES["without"]))
        }
        return [("", prior_table({**fleets, "routes": routes()}))]
    if options.kinds:
        return [("", kind_table(options.kinds, seeds, 2 * options.topics))]
    if options.typical:
        return [("", typical_table(options.seed))]
    if options.few:
        sets = [_fleet(name, options.topics, options.seed) for name in options.sets]
        return [*few_gaps_tables(sets), *((one.name, rules_table(one)) for one in sets)]
    return None if options.defaults is None else _defaults(options, seeds)


def _defaults(options: argparse.Namespace, seeds: Sequence[int]) -> Sequence[tuple[str, Rows]]:
    """Return the tables of what people get who set nothing, or other numbers of false alarms."""
    if "generator" not in options.sets:
        return [("", defaults_of(SETS[name]())) for name in options.sets]
    fleets = options.defaults or SIZES, seeds, OUTAGES[options.outages]
    progress = functools.partial(print, flush=True)
    if options.outages_a_year:
        return [("", outage_rates_table(fleets[0], seeds, options.outages_a_year, progress))]
    if options.accepted:
        return [("", accepted_table(*fleets, options.accepted, progress))]
    return defaults_tables(*fleets, progress)


TRANSFER = "A threshold fitted on one set, realised on another, in 1,000 topic-weeks"


def transfer(sets: list[Measured]) -> Rows:
    """How far a threshold of one set keeps its promise on another."""
    rows: Rows = [("from", "to", "method", *(f"nominal {nominal:.0f}" for nominal in NOMINAL))]
    for source in sets:
        for target in sets:
            for name in ("score", "k x largest gap"):
                if source is not target:
                    rates = [across_sets(source.judged[name], target.judged[name], rate).per_1000 for rate in NOMINAL]
                    rows.append((source.units.fleet.name, target.units.fleet.name, name, *(f"{x:.2f}" for x in rates)))
    return rows


def _fleet(name: str, per_kind: int, seed: int) -> Fleet:
    return generate(per_kind, seed=seed) if name == "generator" else SETS[name]()


def _published(fleet: Fleet, every: int) -> Published:
    with tempfile.TemporaryDirectory(prefix="bench-detection-") as folder:
        history = Path(folder)
        write_spool(fleet, history)
        size = sum(path.stat().st_size for path in history.rglob("*.parquet"))
        spark = start_session("bench", master="local[*]", log=history / "spark.log", data_bytes=size)
        try:
            weeks = range(FIRST_WEEK, fleet.weeks, every)
            return replayed(spark, fleet, history, weeks, NOMINAL, lambda text: print(text, file=sys.stderr))
        finally:
            spark.stop()


def _save(found: Iterable[Measured], carried: Rows) -> None:
    tables = [table for one in found for table in one.tables()]
    if len(carried) > 1:
        tables.append((TRANSFER, carried))
    PAGE.write_text(rendered(PAGE.read_text(encoding="utf-8"), tables), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
