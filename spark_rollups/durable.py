"""Files that survive a crash of the machine: written whole, and synced with the folders that name them."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Write a file so that a reader, or a crash, sees the old or the new content and nothing between."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    sync(path.parent)


def sync(path: Path) -> None:
    """Sync one file, or the names in one folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(folder: Path, *, changed_since: float = 0.0) -> None:
    """Sync what was changed below a folder since then (Unix seconds): files before the folders that name them."""
    for parent, _, names in os.walk(folder, topdown=False):
        changed = [Path(parent, name) for name in names]
        for path in (*changed, Path(parent)):
            if path.stat().st_mtime >= changed_since:
                sync(path)
