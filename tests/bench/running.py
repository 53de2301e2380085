"""What all benches share: a real broker to measure on, and tables for a terminal."""

import contextlib
import math
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

from confluent_kafka import Producer

from tests.demo.broker import Broker, resolve_kafka
from tests.programs import cache_folder
from tests.tables import as_text
from tests.workbench import QUIET


class WrongFiguresError(SystemExit):
    """What was measured is not what was to be measured; the text says what is missing."""


def kafka_jars() -> Path:
    """Return the folder with the jars of Kafka; the first call downloads them."""
    return resolve_kafka(cache=cache_folder(), progress=say)


@contextlib.contextmanager
def real_broker(heap: str = "512m") -> Iterator[Broker]:
    """A real broker, in a folder of its own, until the block ends."""
    with tempfile.TemporaryDirectory() as folder, Broker(Path(folder), jars=kafka_jars(), heap=heap) as broker:
        yield broker


class Writer:
    """Writes a record every 20 ms, to each partition in turn; a context manager."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, **QUIET})
        self._topic, self._partitions = topic, partitions
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._producer.flush(30)

    def _write(self) -> None:
        number = 0
        while not self._stop.wait(0.02):
            self._producer.produce(self._topic, b"x", partition=number % self._partitions)
            self._producer.poll(0)
            number += 1


def say(text: str) -> None:
    """Tell of progress, beside the figures."""
    print(text, file=sys.stderr, flush=True)


def show(title: str, rows: Sequence[Sequence[str]]) -> None:
    print(f"\n{title}\n{as_text(rows)}", flush=True)


def number(value: float) -> str:
    """Return hours or the like with a digit where it matters; nothing for what is not known."""
    if math.isnan(value):
        return ""
    return f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"
