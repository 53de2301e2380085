"""Lowers the memory of a process: imports that it does not need, and free memory that it still holds."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Collection
from importlib.abc import MetaPathFinder
from pathlib import Path, PurePosixPath

WORTH_TRIMMING = 16 * 1024 * 1024
"""Bytes: to return less costs more CPU than it is worth. A poll of 8,000 partitions needs 6 MiB for a moment."""

ROOT = Path("/")
"""The folder that has ``proc`` and ``sys``."""

_UNLIMITED = 2**60
"""Bytes: cgroups without a limit give a larger number (version 1)."""

_M_ARENA_MAX = -8
"""The parameter of glibc's ``mallopt`` for the number of arenas."""


class _Absent(MetaPathFinder):
    def __init__(self, modules: Collection[str]) -> None:
        self._modules = modules

    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname in self._modules:
            raise ModuleNotFoundError(f"this process leaves {fullname} out", name=fullname)


def leave_out(*modules: str) -> None:
    """Have modules be missing in this process from now on: pyarrow imports pandas with its first array, 50 MiB."""
    sys.meta_path.insert(0, _Absent(modules))


def share_one_arena() -> None:
    """Have all threads take memory from one arena: what one of them frees is of use to the others (glibc only).

    To be called before there are threads.
    """
    if (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        mallopt(_M_ARENA_MAX, 1)


def share_the_heap() -> None:
    """Have Arrow take memory as all else does: by default a heap of its own keeps what a file needed for a moment.

    To be called before pyarrow is imported. The variable of the environment that Arrow knows for it counts.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")


def trim_memory() -> None:
    """Return free pages to the system, in some milliseconds (glibc only): a poll needs much memory for a moment."""
    if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)


def resident(pid: int | None = None) -> int:
    """Return the bytes that this or another process holds (RSS). Raises OSError where that has ended."""
    return int(Path(f"/proc/{pid or 'self'}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def limit() -> int | None:
    """Return how many bytes this process and its neighbours in the cgroup may hold together, None without a limit.

    The smallest limit counts, of its own cgroup and those around it. Both versions of cgroups are known. Within a
    container their folders begin with the container's own, whatever path the kernel shows.
    """
    try:
        lines = (ROOT / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    found = []
    for line in lines:
        controllers, _, path = line.partition(":")[2].partition(":")
        if not controllers:
            folder, name = ROOT / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            folder, name = ROOT / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        here = PurePosixPath(path)
        for one in (here, *here.parents):
            try:
                found.append(int((folder / one.relative_to("/") / name).read_text()))
            except (OSError, ValueError):  # "max": this one has no limit
                continue
    return min((bytes_ for bytes_ in found if bytes_ < _UNLIMITED), default=None)


class MemoryTrimmer:
    """Gives memory back where much of it is free: what the next poll needs must be given again, page by page."""

    def __init__(self) -> None:
        self._held = -WORTH_TRIMMING

    def after_a_poll(self) -> None:
        """Give back what was freed, where the process holds far more than when that was last done."""
        if resident() - self._held > WORTH_TRIMMING:
            trim_memory()
            self._held = resident()
