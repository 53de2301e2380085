"""The exposition of /metrics: all clusters and the exporter itself, at most a second old."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from exporter.domain.ports import Clock
from exporter.metrics.catalogue import Metric
from exporter.metrics.lines import Block, Samples, compress_blocks

RENDER_SECONDS = 1.0
"""A scrape within this time of the last one gets the same bytes, unless a poll has ended since."""

Family = tuple[Metric, Sequence[Block]]
"""A metric and its samples."""


class Exposition:
    """Renders /metrics and caches the result for a second. Safe for any thread."""

    def __init__(self, clock: Clock, gather: Callable[[], Sequence[Family]], own: Callable[[], bytes]) -> None:
        """``gather`` returns the present families, ``own`` the exporter's own metrics."""
        self._clock = clock
        self._gather = gather
        self._self_metrics = own
        self._lock = threading.Lock()
        self._made_at: float | None = None
        self._blocks: Sequence[Block] = ()
        self._pieces: dict[bool, Sequence[bytes]] = {}

    def pieces(self, *, zipped: bool = False) -> Sequence[bytes]:
        """Return the exposition in pieces of Prometheus' text format 0.0.4, with gzip if ``zipped``."""
        with self._lock:
            at = self._clock.monotonic()
            if self._made_at is None or not 0 <= at - self._made_at < RENDER_SECONDS:
                gathered = self._gather()
                self._keep(at, [*add_headers(gathered), Block(self._self_metrics())])
            if zipped not in self._pieces:
                pieces = compress_blocks(self._blocks) if zipped else [block.text for block in self._blocks]
                self._pieces[zipped] = tuple(pieces)
            return self._pieces[zipped]

    def forget(self) -> None:
        """Drop the cached exposition: a poll has replaced it, and it would use memory until the next scrape."""
        with self._lock:
            self._keep(None, ())

    def _keep(self, made_at: float | None, blocks: Sequence[Block]) -> None:
        self._made_at, self._blocks, self._pieces = made_at, blocks, {}


def families(
    metrics: Iterable[Metric], shown: Mapping[Any, Samples], times: Mapping[Any, float] | None = None
) -> list[Family]:
    """Return the samples of all clusters, or pairs of clusters, by metric and sorted by name.

    ``times`` are the present of each, for samples that grow.
    """
    return [
        (
            metric,
            [
                block
                for name in sorted(shown)
                for part in shown[name].get(metric.name, ())
                if (block := part.render(times[name] if times else 0.0)).text
            ],
        )
        for metric in metrics
    ]


def add_headers(shown: Iterable[Family]) -> Iterator[Block]:
    """Return families as blocks, each after its header; families without a sample are left out."""
    for metric, blocks in shown:
        if blocks:
            yield _header(metric)
            yield from blocks


@cache
def _header(metric: Metric) -> Block:
    return Block(f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {metric.type}\n".encode())
