"""What a process and all its descendants take of CPU and memory, as Linux counts it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_MIB = 2.0**20


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU seconds since the start, user and system, of ended children too; resident MiB, with shared pages in each."""

    cpu: float
    rss_mib: float


@dataclass(frozen=True, slots=True)
class _Process:
    parent: int
    started: int
    ticks: int
    pages: int


def usage(pid: int) -> Usage:
    """Return what a process and its descendants have used. Raises ProcessLookupError where it has ended."""
    tree = _tree(pid).values()
    return Usage(
        sum(each.ticks for each in tree) / os.sysconf("SC_CLK_TCK"),
        sum(each.pages for each in tree) * os.sysconf("SC_PAGE_SIZE") / _MIB,
    )


def descendants(pid: int) -> list[int]:
    """Return the ids of all processes under one, oldest first. Raises ProcessLookupError where it has ended."""
    tree = _tree(pid)
    # Not by their ids, which begin anew after the largest one.
    return sorted(tree.keys() - {pid}, key=lambda each: (tree[each].started, each))


@dataclass(frozen=True, slots=True)
class Held:
    """MiB that processes hold together. ``pss``: a page that n share counts 1/n in each; a container is charged so.

    ``anonymous`` is what belongs to no file. The system can take back the rest when memory is short, at the cost of
    reading it again.
    """

    pss: float
    anonymous: float


def held(pid: int) -> Held:
    """Return what a process and its descendants hold.

    Raises PermissionError where the process is another user's, ProcessLookupError where it has ended.
    """
    total = {"Pss": 0, "Pss_Anon": 0}
    for each in _tree(pid):
        try:
            lines = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):
            continue
        for name, rest in (line.split(":", 1) for line in lines[1:]):
            if name in total:
                total[name] += int(rest.split()[0])
    return Held(total["Pss"] / 1024, total["Pss_Anon"] / 1024)


@dataclass(frozen=True, slots=True)
class Memory:
    """MiB of a process tree: resident, proportional and anonymous (None where it may not be read)."""

    rss: float
    pss: float | None
    anonymous: float | None


def memory(pid: int) -> Memory:
    """Return what a process tree holds now."""
    resident = usage(pid).rss_mib
    try:
        shares = held(pid)
    except PermissionError:
        return Memory(resident, None, None)
    return Memory(resident, shares.pss, shares.anonymous)


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
