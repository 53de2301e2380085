"""Files that survive a crash of the machine: written whole, and synced with the folders that name them."""

import os
from pathlib import Path

from exporter.storage.files import Location, open_file, put, sync


def write_whole(path: Location, text: str) -> None:
    """Write a file atomically: readers, also after a crash, see the old content or the new one."""
    put(path, lambda file: file.write(text.encode()))


def read_text(path: Location) -> str:
    """Return the text of a small file. Raises OSError, and ValueError where it is not text."""
    with open_file(path) as file:
        return file.read().decode()


def sync_tree(folder: Location, *, changed_since: float = 0.0) -> None:
    """Sync files below a folder that changed since then (Unix seconds), and after them the folders that name them.

    Object storage needs no sync: it keeps every object that it accepted.
    """
    if not isinstance(folder, Path):
        return
    for parent, _, names in os.walk(folder, topdown=False):
        changed = [Path(parent, name) for name in names]
        for path in (*changed, Path(parent)):
            if path.stat().st_mtime >= changed_since:
                sync(path)
