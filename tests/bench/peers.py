"""What another exporter takes that runs beside the measured one."""

from __future__ import annotations

import http.client
import sys
import threading
import time
from dataclasses import dataclass

from tests.bench.process_tree import Memory, memory, usage
from tests.bench.scraping import scrape


@dataclass(frozen=True, slots=True)
class Peer:
    """Another exporter that runs already: the id of its process, or of a shell above it, and its /metrics."""

    pid: int
    url: str


@dataclass(frozen=True, slots=True)
class PeerCosts:
    """Another exporter meanwhile: CPU seconds each interval, seconds of scrapes (None where none succeeded)."""

    url: str
    moving: float
    cpu: float
    memory: Memory
    scrapes: int
    p50: float | None
    worst: float | None


class PeerWatch:
    """Scrapes a peer each ``interval`` seconds in a thread of its own until ``end``."""

    def __init__(self, peer: Peer, interval: float) -> None:
        self._interval = interval
        self._peer = peer
        self._cpu = usage(peer.pid).cpu
        self._began = time.perf_counter()
        self._took: list[float] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._scrape)
        self._thread.start()

    def end(self, share: float) -> PeerCosts:
        """Return what the peer took, while a ``share`` of the partitions moved."""
        self._ended.set()
        self._thread.join()
        intervals = (time.perf_counter() - self._began) / self._interval
        cpu = (usage(self._peer.pid).cpu - self._cpu) / intervals
        took = sorted(self._took)
        return PeerCosts(
            self._peer.url,
            share,
            cpu,
            memory(self._peer.pid),
            len(took),
            took[len(took) // 2] if took else None,
            took[-1] if took else None,
        )

    def _scrape(self) -> None:
        while not self._ended.is_set():
            began = time.perf_counter()
            try:
                scrape(self._peer.url)
            except (OSError, http.client.HTTPException) as error:
                print(f"  {self._peer.url}: {error}", file=sys.stderr)
            else:
                self._took.append(time.perf_counter() - began)
            self._ended.wait(max(0.0, self._interval - (time.perf_counter() - began)))
