"""Pointers to published expectations as a failing disk, a wrong hand or an attacker may leave them."""

import json
import os
from pathlib import Path

WHOLE = {
    "schema_version": 1,
    "as_of": "2026-03-01T12:00:00Z",
    "published_at": "2026-03-01T12:01:00Z",
    "expectations": "expectations-1",
    "thresholds": {"topic": 2.0},
    "counted": {},
}
HUGE = 10**400

DAMAGED: dict[str, str | bytes] = {
    "a byte that is no UTF-8": json.dumps(WHOLE).encode().replace(b"topic", b"t\xffpic"),
    "deep nesting": "[" * 100_000,
    "a threshold of 400 digits": json.dumps({**WHOLE, "thresholds": {"topic": HUGE}}),
    "a count of 400 digits": json.dumps({**WHOLE, "counted": {"topic": {"false_alarms": HUGE, "topic_weeks": 1}}}),
    "a version of 5,000 digits": json.dumps(WHOLE).replace('"schema_version": 1', f'"schema_version": {"1" * 5000}'),
    "a folder with a lone surrogate": json.dumps({**WHOLE, "expectations": "\ud800"}),
    "a folder with a NUL": json.dumps({**WHOLE, "expectations": "a\0b"}),
    "a stream with a lone surrogate": json.dumps({**WHOLE, "thresholds": {"\ud800": 2.0}}),
    "a folder of a megabyte": json.dumps({**WHOLE, "expectations": "a" * 1_000_000}),
    "a moment before the calendar": json.dumps({**WHOLE, "as_of": "0000-01-01T00:00:00Z"}),
    "a gigabyte": b"",
    "a pipe": b"",
}


def damage(pointer: Path, how: str) -> None:
    """Put a damaged pointer in the place of ``pointer``, at once as a rollup does."""
    draft = pointer.with_name(f".{pointer.name}")
    if how == "a pipe":
        os.mkfifo(draft)
    else:
        content = DAMAGED[how]
        draft.write_bytes(content if isinstance(content, bytes) else content.encode())
        if how == "a gigabyte":
            os.truncate(draft, 2**30)
    draft.replace(pointer)
