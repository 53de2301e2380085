"""What the log looks like: one line an event on standard error, as text or as JSON."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime


class TextFormatter(logging.Formatter):
    """``2026-03-03T02:14:00.123Z WARNING exporter.monitor: cluster prod: ...``, then the traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of one record."""
        message = record.getMessage().replace("\n", "\n  ")
        line = f"{_moment(record)} {record.levelname} {record.name}: {message}"
        return line if not record.exc_info else f"{line}\n{self.formatException(record.exc_info)}"


class JsonFormatter(logging.Formatter):
    """One JSON object a line: ``time``, ``level``, ``logger``, ``message``, and ``exception`` where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of one record."""
        line = {
            "time": _moment(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def set_up_logging(level: str, form: str) -> None:
    """Log to standard error from ``level`` on; ``form`` is ``text`` or ``json``."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(capture=True)
    if level != "debug":
        # The scheduler tells of each run it starts and ends.
        logging.getLogger("apscheduler").setLevel(logging.WARNING)


def _moment(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
