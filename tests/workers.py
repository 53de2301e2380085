"""Which worker runs which file of tests: a file stays whole, and what is costly to start is started by one worker."""

import functools
import re
from collections import defaultdict
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

STARTED = {
    "spark": re.compile(r"\bspark: SparkSession|usefixtures\(\"spark\"\)"),
    "brokers": re.compile(r"\b(?:kafka: Kafka|brokers: Mapping|secured: Secured)\b"),
    "trio": re.compile(r"\btrio: Trio\b"),
}
"""What tests share that takes long to start, and what a file of tests says that needs it.

One session of Spark, one set of the brokers of all versions and of the secured one, and one of three of one cluster.
"""

LONG = (
    "spark/test_retention.py",
    "spark/test_rollup.py",
    "spark/test_living_fleet.py",
    "spark/test_runs.py",
    "spark/test_tables_upkeep.py",
    "spark/test_failures.py",
    "integration/test_readings.py",
    "spark/test_cluster.py",
    "integration/test_object_storage.py",
    "integration/test_demo.py",
    "spark/test_object_storage.py",
    "integration/test_client_outages.py",
    "spark/test_job.py",
    "integration/test_network.py",
    "spark/test_environment.py",
    "integration/test_three_brokers.py",
    "integration/test_audit.py",
    "integration/test_replicas.py",
)
"""Files that take a minute and more, so that none is left alone at the end: what computes beside what mostly waits."""


@functools.cache
def needs(path: Path) -> str:
    """Return what a file of tests needs of STARTED, or nothing."""
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    return next((name for name, pattern in STARTED.items() if pattern.search(text)), "")


def place(item: pytest.Item) -> tuple[int, int]:
    """Return where a test stands in the order of all: what needs most first, and of that the files in LONG."""
    kinds, folder = [*STARTED, ""], item.path.parent.name
    name, quick = f"{folder}/{item.path.name}", folder not in ("spark", "integration")
    return kinds.index(needs(item.path)) + quick, LONG.index(name) if name in LONG else len(LONG)


class ByFile(LoadScopeScheduling):  # type: ignore[misc] # pytest-xdist has no types
    """Gives files of tests to workers, in the order in which they were collected.

    A worker is given the first file that needs nothing, or what this worker has started already, or what no other
    has; where none is left, any. So a fixture of a file is made once in a run.
    """

    def __init__(self, config: pytest.Config, log: Producer | None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False
        self._root = config.rootpath
        self._started: defaultdict[str, set[WorkerController]] = defaultdict(set)

    def _split_scope(self, nodeid: str) -> str:
        return nodeid.partition("::")[0]

    def _assign_work_unit(self, node: WorkerController) -> None:
        fitting = (file for file in self.workqueue if self._fits(node, needs(self._root / file)))
        file = next(fitting, next(iter(self.workqueue)))
        self.workqueue.move_to_end(file, last=False)
        self._started[needs(self._root / file)].add(node)
        super()._assign_work_unit(node)

    def _fits(self, node: WorkerController, needed: str) -> bool:
        started = self._started[needed]
        return not needed or node in started or not started

    def remove_node(self, node: WorkerController) -> str | None:
        """Take the tests of a worker that ended back; return the one at which it did, which is not run again."""
        for started in self._started.values():
            started.discard(node)
        assigned: dict[str, dict[str, bool]] = self.assigned_work[node]
        for file in assigned.values():
            for test, done in file.items():
                if not done:
                    file[test] = True  # xdist 3.8 would give it to the next worker, which it would end as well
                    super().remove_node(node)
                    return test
        super().remove_node(node)
        return None
