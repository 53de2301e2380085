"""Memory of this process: how much it holds, and imports that it does not need."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection
from importlib.abc import MetaPathFinder
from pathlib import Path


class _Absent(MetaPathFinder):
    def __init__(self, modules: Collection[str]) -> None:
        self._modules = modules

    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname in self._modules:
            raise ModuleNotFoundError(f"this process leaves {fullname} out", name=fullname)


def leave_out(*modules: str) -> None:
    """Have modules be missing in this process from now on: pyarrow imports pandas with its first array, 50 MiB."""
    sys.meta_path.insert(0, _Absent(modules))


def share_the_heap() -> None:
    """Have Arrow take memory as all else does: by default a heap of its own keeps what a file needed for a moment.

    To be called before pyarrow is imported. The variable of the environment that Arrow knows for it counts.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")


def resident(pid: int | None = None) -> int:
    """Return the bytes that this or another process holds (RSS). Raises OSError where that has ended."""
    return int(Path(f"/proc/{pid or 'self'}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
