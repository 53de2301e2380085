"""What the log looks like: one line an event on standard error, as text or as JSON."""

from __future__ import annotations

import json
import logging
import math

from exporter.domain.formatting import iso

_OURS = __name__.partition(".")[0]


class TextFormatter(logging.Formatter):
    """``2026-03-03T02:14:00.123Z WARNING exporter.state: cluster prod: ...``, then the traceback if there is one.

    Further lines of an event are indented, and what is not printable is escaped: text from elsewhere can neither
    forge an event nor steer a terminal.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of one record."""
        said = [record.getMessage(), *_traceback(self, record)]
        text = "\n  ".join(map(_printable, "\n".join(said).split("\n")))
        return f"{iso(record.created)} {record.levelname} {record.name}: {text}"


class JsonFormatter(logging.Formatter):
    """One JSON object a line: ``time``, ``level``, ``logger``, ``message``, and ``exception`` where there is one.

    What is not printable is escaped.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of one record."""
        line = {
            "time": iso(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for traceback in _traceback(self, record):
            line["exception"] = traceback
        text = json.dumps(line, ensure_ascii=False)
        # JSON lets pass what some programs take for the end of a line, or a terminal for a command.
        return "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in text)


class OnceAMinute(logging.Filter):
    """Lets a logger say the same thing once a minute; the next line tells how often it was left out."""

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[tuple[str, int], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether to pass ``record``; what comes from one line of a program is the same thing."""
        place = record.pathname, record.lineno
        at, left_out = self._said.get(place, (-math.inf, 0))
        # A clock that was set back must not silence it for longer.
        if abs(record.created - at) < 60:
            self._said[place] = at, left_out + 1
            return False
        self._said[place] = record.created, 0
        if left_out:
            record.msg, record.args = f"{record.getMessage()} ({left_out} more since this was last said)", None
        return True


def set_up_logging(level: str, form: str) -> None:
    """Log to standard error from ``level`` on; ``form`` is ``text`` or ``json``.

    Packages of others are heard from WARNING on only: AWS's log credentials and signatures at debug.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    # The level of the root is not enough: a package may set one of its own.
    handler.addFilter(lambda record: record.levelno >= logging.WARNING or _is_ours(record.name))
    own = logging.getLogger(_OURS)
    own.setLevel(level.upper())
    logging.basicConfig(level=max(own.level, logging.WARNING), handlers=[handler], force=True)
    logging.captureWarnings(capture=True)


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> list[str]:
    """Return the traceback as an event has it, or as text where the event is from another process; none is []."""
    if record.exc_info:
        return [formatter.formatException(record.exc_info)]
    return [record.exc_text] if record.exc_text else []


def _is_ours(logger: str) -> bool:
    return logger.partition(".")[0] == _OURS


def _printable(line: str) -> str:
    if line.isprintable():
        return line
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in line)
