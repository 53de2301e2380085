"""What exporters survive: outages of their broker, and kills of their Kafka client. Run by ``make bench-outage``."""

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import confluent_kafka
from confluent_kafka import Consumer
from prometheus_client.samples import Sample

from tests.bench.running import Writer, WrongFiguresError, kafka_jars, say
from tests.demo.broker import Broker
from tests.integration.serving import Exporter
from tests.trio import frozen
from tests.workbench import Workbench

TOPIC, PARTITIONS, GROUPS = "spread", 30, 20
SERIES = {"kafka_topic_partition_current_offset": PARTITIONS, "kafka_consumergroup_current_offset": GROUPS}
"""How many series of the topic an exporter shows that has read all."""

FROZEN_SECONDS = 21.0
"""Past the 20 s after which an exporter stayed blind for good once."""


@dataclass(slots=True)
class Survived:
    """What exporters of one broker went through, and what they showed meanwhile."""

    disturbances: int = 0
    """Outages of the broker, and kills of an exporter's client."""
    whole_after: int = 0
    """After how many of them all polled, swept and showed every series again within a minute."""
    scrapes: int = 0
    false_verdicts: int = 0
    """Scrapes in which something was dead or suspect. All is written to while the broker is there."""
    restarts: dict[str, int] = field(default_factory=dict)
    """Client processes that were replaced, by reason."""
    polls: dict[str, int] = field(default_factory=dict)
    """Polls by outcome."""


class Watched:
    """Exporters of one broker, each a process of its own, and what they show."""

    def __init__(self, exporters: Sequence[Exporter]) -> None:
        self.all = exporters
        self.survived = Survived()
        self._good: list[tuple[float, ...]] = [(0.0, 0.0)] * len(self.all)

    def disturb(self, what: AbstractContextManager[object]) -> None:
        """Scrape while something lasts, and afterwards until all is well again, for a minute at most."""
        self.survived.disturbances += 1
        with what:
            self._look()
        self._good = [_good(exporter.samples()) for exporter in self.all]
        self.survived.whole_after += self.become_whole()

    def become_whole(self) -> bool:
        """Return whether each shows all series of a later poll and sweep within a minute."""
        deadline = time.monotonic() + 60
        while not self._look():
            if time.monotonic() > deadline:
                return False
            time.sleep(1)
        return True

    def conclude(self) -> Survived:
        """End all, each well, and return what they were through. Raises WrongFiguresError where one ended before."""
        for exporter in self.all:
            samples = exporter.samples()
            _add(self.survived.restarts, samples, "topic_liveness_client_restarts_total", "reason")
            _add(self.survived.polls, samples, "topic_liveness_polls_total", "outcome")
        codes = [exporter.end() for exporter in self.all]
        if any(codes):
            raise WrongFiguresError("an exporter did not end well")
        return self.survived

    def _look(self) -> bool:
        """Scrape each once; return whether all are whole."""
        whole = True
        for exporter, good in zip(self.all, self._good, strict=True):
            samples = exporter.samples()
            self.survived.scrapes += 1
            self.survived.false_verdicts += any(_is_alarm(sample) for sample in samples)
            shown = Counter(sample.name for sample in samples if sample.labels.get("topic") == TOPIC)
            later = all(now > before for now, before in zip(_good(samples), good, strict=True))
            whole &= later and [shown[name] for name in SERIES] == list(SERIES.values())
        return whole


def _good(samples: list[Sample]) -> tuple[float, ...]:
    counts = {sample.name: sample.value for sample in samples if sample.labels.get("outcome") == "ok"}
    return tuple(counts.get(f"topic_liveness_{name}_total", 0.0) for name in ("polls", "group_sweeps"))


def _is_alarm(sample: Sample) -> bool:
    verdicts = ("kafka_topic_verdict", "kafka_topic_partition_verdict")
    return sample.name in verdicts and sample.labels["verdict"] in {"dead", "suspect"} and sample.value > 0


def _add(counts: dict[str, int], samples: list[Sample], name: str, label: str) -> None:
    for sample in samples:
        if sample.name == name and sample.value:
            counts[sample.labels[label]] = counts.get(sample.labels[label], 0) + int(sample.value)


@contextmanager
def _restarted(broker: Broker, end: Callable[[], object]) -> Iterator[None]:
    end()
    time.sleep(4)
    yield
    broker.start()


@contextmanager
def _frozen(broker: Broker) -> Iterator[None]:
    with frozen(broker):
        yield
        time.sleep(FROZEN_SECONDS)


@contextmanager
def _killed(exporter: Exporter) -> Iterator[None]:
    os.kill(exporter.clients()[-1], signal.SIGKILL)
    yield


def survive(jars: Path, folder: Path, outages: int, kills: int, exporters: int = 3) -> Survived:
    """Kill the broker of exporters and start it again, freeze it for 21 s, stop it and start it again, and so on.

    A connection that was silent for so long is the one that librdkafka may not open again. Afterwards kill the Kafka
    client of one exporter after the other.
    """
    with Broker(folder / "broker", jars=jars) as broker:
        Workbench(broker.bootstrap).create(TOPIC, PARTITIONS)
        for number in range(GROUPS):
            consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": f"group-{number}", "log_level": 0})
            consumer.commit(offsets=[confluent_kafka.TopicPartition(TOPIC, number, 0)], asynchronous=False)
            consumer.close()
        settings = {
            "TOPIC_LIVENESS_GROUPS__INTERVAL": "5s",
            "TOPIC_LIVENESS_OVERRIDES": json.dumps([{"topics": TOPIC, "max_silence": "3m"}]),
        }
        with Writer(broker.bootstrap, TOPIC, PARTITIONS), ExitStack() as stack:
            folders = [Path(tempfile.mkdtemp(dir=folder)) for _ in range(exporters)]
            watched = Watched([stack.enter_context(Exporter(each, broker.bootstrap, **settings)) for each in folders])
            if not watched.become_whole():
                raise WrongFiguresError("the exporters do not show every series at first")
            for number in range(outages):
                ways = (_restarted(broker, broker.kill), _frozen(broker), _restarted(broker, broker.stop))
                watched.disturb(ways[number % 3])
                say(f"  {number + 1} outages")
            for number in range(kills):
                watched.disturb(_killed(watched.all[number % exporters]))
                say(f"  {number + 1} kills of a client")
            return watched.conclude()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--outages", type=int, default=6, help="how often the broker of three exporters goes")
    parser.add_argument("--kills", type=int, default=6, help="how often the Kafka client of one of them is killed")
    given = parser.parse_args()
    jars = kafka_jars()
    with tempfile.TemporaryDirectory() as folder:
        survived = survive(jars, Path(folder), given.outages, given.kills)
    print(f"Three exporters: {given.outages} outages of their broker, {given.kills} kills of a client")
    print(f"polled, swept and showed every series within a minute: after {survived.whole_after}")
    print(f"scrapes: {survived.scrapes}, of them with a false verdict: {survived.false_verdicts}")
    print(f"polls: {survived.polls}; clients replaced: {survived.restarts}; exporters that ended: 0")
    return 0 if survived.whole_after == survived.disturbances and not survived.false_verdicts else 1


if __name__ == "__main__":
    sys.exit(main())
