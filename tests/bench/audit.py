"""What an audit costs, on the fake cluster, and how right the first day is, on a real broker (``--fleets``).

Run by ``make bench-audit``. With ``--fleets`` it writes that many fleets of 12 dead and 20 living topics, and prints
how many of each are called what by the audit, by the exporter and in the report. Else of twenty topics eleven are
written now, one is silent for hours after weeks of records every half hour, and two each are silent for days after a
record a day, dead for months after records every hour, dead after a record a week, and silent for weeks after three
records of one day. The rate of look-ups is the default.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.bench.running import real_broker, show
from tests.dead_and_living import DEAD, LIVING, write_fleet
from tests.fake_cluster import FakeCluster
from tests.integration.auditing import audit
from tests.integration.serving import Exporter
from tests.process_tree import Watch
from tests.tables import Rows
from tests.waiting import until
from tests.workbench import Workbench

DAY = 86_400_000
_ALARMING_SECTIONS = {"abandoned", "newly-dead", "suspect", "still-dead", "retired"}
KINDS = (
    # Of twenty topics so many; days since the newest record, days from the oldest to it, records of a partition.
    (1, 0.1, 60, 2_880),
    (2, 3, 60, 60),
    (2, 90, 60, 1_440),
    (2, 120, 180, 26),
    (2, 40, 1, 3),
)


class DayOne:
    """An exporter with default settings, whose history lies in ``folder``, and the commands beside it."""

    def __init__(self, folder: Path, bootstrap: str, *topics: str) -> None:
        """``topics`` are patterns of names."""
        self.folder, self.history, self._config = folder, folder / "history", folder / "serve.yaml"
        self._config.write_text(
            f"clusters: [{{name: prod, kafka: {{bootstrap.servers: '{bootstrap}'}}, "
            f"topics: {{include: {json.dumps(topics)}}}}}]\nhistory: {{folder: '{self.history}'}}\n"
        )
        self.serving = type("Configured", (Exporter,), {"config": self._config})

    def run(self, *arguments: str) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "exporter", *arguments, "--config", str(self._config)],
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def report(self) -> Mapping[str, Any]:
        """Run a backfill, and a rollup with its report, and return the report's JSON."""
        self.run("backfill")
        self.run("rollup", "--report", "--master", "local[2]")
        [path] = (self.history / "published" / "reports").glob("*/liveness.json")
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    def poll(self, topics: int) -> dict[str, str]:
        """Serve until so many topics have a verdict and their inventory is written; return the verdicts."""
        with self.serving(self.folder) as exporter:
            until(lambda: len(verdicts(exporter)) == topics, "the first poll")
            until(lambda: any((self.history / "spool" / "inventory").glob("*.parquet")), "the inventory")
            return verdicts(exporter)


def verdicts(exporter: Exporter) -> dict[str, str]:
    return {
        sample.labels["topic"]: sample.labels["verdict"]
        for sample in exporter.samples("kafka_topic_verdict{")
        if sample.value == 1
    }


def sections_of(report: Mapping[str, Any]) -> dict[str, list[str]]:
    return {one["key"]: [entry["topic"] for entry in one["entries"]] for one in report["sections"]}


def count_right(fleets: int, seed: int) -> None:
    """Print for each fleet how many dead topics audit, exporter and report name, and what each says of living ones.

    The exporter polls once before a backfill and a rollup, and is asked after them.
    """
    rows: Rows = [("fleet", "what says it", "dead topics named", "living topics")]
    with tempfile.TemporaryDirectory() as folder, real_broker() as broker:
        workbench, day = Workbench(broker.bootstrap), DayOne(Path(folder), broker.bootstrap, "fleet-.*")
        names = [f"fleet-{number}-" for number in range(seed, seed + fleets)]
        for number, name in enumerate(names, seed):
            write_fleet(workbench, time.time(), number, name)
        topics = fleets * (len(DEAD) + len(LIVING))
        audited = audit(broker.bootstrap, "fleet-.*")
        first = day.poll(topics)
        sections = sections_of(day.report())
        reported = {topic: key for key, listed in sections.items() for topic in listed if key in _ALARMING_SECTIONS}
        exposed = day.poll(topics)
        said = {topic: audited.what(topic) for topic in exposed}
        ways = (
            ("audit", said, {"abandoned"}),
            ("exporter's first poll", first, {"retired"}),
            ("exporter after a rollup", exposed, {"retired", "dead"}),
            ("report", reported, {"abandoned"}),
        )
        for name in names:
            for way, what, right in ways:
                named = sum(what.get(name + story.name) in right for story in DEAD)
                living = Counter(what.get(name + story.name, "not listed") for story in LIVING)
                said_of_living = ", ".join(f"{count} {word}" for word, count in living.items())
                rows.append((name[:-1], way, f"{named} of {len(DEAD)}", said_of_living))
    show("The first day", rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=1_000, help="how many topics")
    parser.add_argument("--partitions", type=int, default=12, help="partitions of each")
    parser.add_argument("--brokers", type=int, default=1, help="how many brokers")
    parser.add_argument("--fleets", type=int, default=0, help="how many fleets on a real broker, instead")
    parser.add_argument("--seed", type=int, default=1, help="of the first fleet")
    given = parser.parse_args()
    if given.fleets:
        count_right(given.fleets, given.seed)
    else:
        measure(given.topics, given.partitions, given.brokers)


def measure(topics: int, partitions: int, brokers: int) -> None:
    """Print one line: topics, partitions, seconds, peak memory of all processes, and what topics are."""
    with FakeCluster(topics, partitions, brokers=brokers) as cluster:
        now = int(time.time() * 1000)
        kinds = [kind for count, *kind in KINDS for _ in range(count)]
        for place, (ended, lived, records) in enumerate(kinds):
            newest = now - int(ended * DAY)
            cluster.command("past", 20, place, newest - int(lived * DAY), newest, int(records))
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "audit.json"
            command = [sys.executable, "-m", "exporter", "audit", "--bootstrap-server", cluster.bootstrap]
            begun = time.monotonic()
            with subprocess.Popen([*command, "--format", "json", "--output", str(out)]) as running:
                watch = Watch(running.pid)
                code = running.wait()
            took = time.monotonic() - begun
            found = json.loads(out.read_text())
    print(
        f"{topics:,} topics of {partitions:,} partitions, {brokers} brokers: {took:.1f} s, "
        f"{watch.pss_mib:.0f} MiB at most (PSS of all processes), exit code {code}; {found['counts']}"
    )


if __name__ == "__main__":
    main()
