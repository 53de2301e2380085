"""Print the bench of detection: ``make bench-detection``.

Streams are the generator's (thirteen kinds, with outages, pauses, deaths, a holiday, and two spans in which no exporter
looked) or real departures from New York in 2013: by route, or by aircraft, which are slow. Each stream is cut once a
week at a random moment, as if it had died; the delay counts from the last record before to the alarm, and one without
alarm in 28 days counts as 28 days. An alarm is false where a record ends the silence within 28 days of its beginning;
what was put in as an outage, and known incidents, do not count.
"""

import argparse
from collections.abc import Callable, Sequence

from tests.bench.detection.defaults import OUTAGES, defaults_of, defaults_table
from tests.bench.detection.few_gaps import few_gaps_table, rules_table
from tests.bench.detection.fleet import Fleet
from tests.bench.detection.routes import aircraft, routes
from tests.bench.detection.streams import generate
from tests.bench.detection.typical import typical_table
from tests.bench.running import say, show
from tests.tables import Rows

SETS: dict[str, Callable[[int], Fleet]] = {
    "generator": lambda seed: generate(seed=seed),
    "routes": lambda _: routes(),
    "aircraft": lambda _: aircraft(),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="make bench-detection ARGS=...", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--defaults", type=int, nargs="*", metavar="TOPICS", help="what the defaults give on fleets of so many topics")
    add("--outages", choices=OUTAGES, default="both", help="which fleets: with outages in a tenth of the topics, ...")
    add("--sets", nargs="+", choices=SETS, default=["generator"], help="what the defaults give on these sets")
    add("--typical", action="store_true", help="how soon twelve typical topics are late, suspect and dead")
    add("--few", action="store_true", help="what is dead by few gaps, and how much of it is written again")
    add("--seeds", "--seed", type=int, nargs="+", default=[4], metavar="N", help="of generated fleets")
    for title, rows in _tables(parser.parse_args()):
        show(title, rows)


def _tables(given: argparse.Namespace) -> Sequence[tuple[str, Rows]]:
    if given.typical:
        return [("Twelve typical topics", typical_table(given.seeds[0]))]
    sets = [SETS[name](seed) for name in given.sets for seed in (given.seeds if name == "generator" else [0])]
    if given.few:
        return [("By few gaps", few_gaps_table(sets)), *((one.name, rules_table(one)) for one in sets)]
    if given.sets != ["generator"]:
        return [("From the ninth week on", defaults_of(sets))]
    found = defaults_table(given.defaults or [50, 375], given.seeds, OUTAGES[given.outages], say)
    return [("From the ninth week on", found)]


if __name__ == "__main__":
    main()
