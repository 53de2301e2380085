"""What a process and all its descendants take of CPU and memory, as Linux counts it."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

SAMPLE_SECONDS = 0.2
SAMPLES_A_PSS = 5
"""PSS is counted page by page, which costs more than all other figures."""


@dataclass(frozen=True, slots=True)
class Memory:
    """MiB that processes hold. ``pss`` counts a page that several share once, as a container is charged."""

    rss: float
    pss: float


@dataclass(frozen=True, slots=True)
class _Process:
    parent: int
    started: int
    ticks: int
    pages: int


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a process, its descendants and ended children. Raises ProcessLookupError if ended."""
    return sum(each.ticks for each in _tree(pid).values()) / os.sysconf("SC_CLK_TCK")


def resident_mib(pid: int) -> float:
    """Return the RSS of a process and its descendants. Raises ProcessLookupError if it has ended."""
    return sum(each.pages for each in _tree(pid).values()) * os.sysconf("SC_PAGE_SIZE") / 2**20


def memory(pid: int) -> Memory:
    """Return what a process and its descendants hold.

    Raises PermissionError where the process is another user's, ProcessLookupError where it has ended.
    """
    shares = 0
    for each in _tree(pid):
        with suppress(FileNotFoundError, ProcessLookupError):
            lines = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()
            shares += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return Memory(resident_mib(pid), shares / 1024)


def descendants(pid: int) -> list[int]:
    """Return the ids of all processes under one, oldest first. Raises ProcessLookupError where it has ended."""
    tree = _tree(pid)
    # Not by their ids, which begin anew after the largest one.
    return sorted(tree.keys() - {pid}, key=lambda each: (tree[each].started, each))


class Watch(threading.Thread):
    """Keeps the CPU seconds so far of a process tree, and the largest memory, until the process ends."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self.cpu = self.rss_mib = self.pss_mib = 0.0
        self.start()

    def run(self) -> None:
        """Look again and again; a process that ended, but was not waited for, has no memory."""
        samples = 0
        with suppress(ProcessLookupError):
            while True:
                self.cpu = max(self.cpu, cpu_seconds(self._pid))
                self.rss_mib = max(self.rss_mib, resident_mib(self._pid))
                if samples % SAMPLES_A_PSS == 0:
                    self.pss_mib = max(self.pss_mib, memory(self._pid).pss)
                samples += 1
                time.sleep(SAMPLE_SECONDS)


def _tree(pid: int) -> dict[int, _Process]:
    running = dict(_processes())
    if pid not in running:
        raise ProcessLookupError(f"no process has the id {pid}")
    family, grown = {pid}, True
    while grown:
        more = {child for child, each in running.items() if each.parent in family} - family
        family |= more
        grown = bool(more)
    return {each: running[each] for each in family}


def _processes() -> Iterator[tuple[int, _Process]]:
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                values = Path(entry.path, "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            # utime, stime, and both of the children that were waited for
            ticks = sum(map(int, values[11:15]))
            yield int(entry.name), _Process(int(values[1]), int(values[19]), ticks, int(values[21]))
