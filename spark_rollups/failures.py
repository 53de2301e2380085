"""What a failure that nobody foresaw means to a person: its cause and the next step, in a line."""

from __future__ import annotations

from collections.abc import Mapping

from spark_rollups.session import MORE_MEMORY, SessionEndedError

_RIGHTS = (
    "Give this job the rights to list, read, write and delete there (docs/history-folder.md#object-storage) and run it "
    "again"
)
_NEWER = "A newer release wrote that table: run this with the release that did, or move tables/ away and run it again"
_DAMAGED = (
    "Restore that table from a backup, or move tables/ away and run it again: all tables are then made of what is in "
    "the spool"
)

_NEXT_STEPS: Mapping[str, str] = {
    "AccessDeniedException": _RIGHTS,
    "DELTA_INVALID_PROTOCOL_VERSION": _NEWER,
    "DELTA_UNSUPPORTED_FEATURES": _NEWER,
    "JsonParseException": _DAMAGED,
}
"""By what Java calls a failure; the first that is found counts."""


def in_a_line(error: Exception) -> str:
    """Return what went wrong: of Java's page the outermost error and the innermost cause."""
    lines = [line.strip() for line in f"{type(error).__name__}: {error}".splitlines()]
    heads = [line.removeprefix(": ") for line in lines if line.startswith(": ")]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    if isinstance(error, SessionEndedError):
        return str(error)
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if any("OutOfMemoryError" in line for line in lines):
        return MORE_MEMORY
    return ", because of ".join(line.rstrip(".") for line in [(heads or lines)[0], *causes[-1:]])


def next_step(error: Exception) -> str:
    """Return what to do about it."""
    if isinstance(error, PermissionError):
        return _RIGHTS
    told = str(error)
    return next((step for sign, step in _NEXT_STEPS.items() if sign in told), "Mend that and run it again")
