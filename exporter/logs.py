"""Log formats: one line for each event on standard error, as text or JSON."""

import json
import logging
import math
import sys
from typing import TextIO

from exporter.domain.formatting import iso

_OURS = __name__.partition(".")[0]


class TextFormatter(logging.Formatter):
    """``2026-03-03T02:14:00.123Z WARNING exporter.state: cluster prod: ...``, then the traceback if there is one.

    Further lines of an event are indented, and unprintable characters are escaped. Foreign text can therefore neither
    forge an event nor control a terminal.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of one record."""
        lines = [record.getMessage(), *_traceback(self, record)]
        text = "\n  ".join(map(_printable, "\n".join(lines).split("\n")))
        return f"{iso(record.created)} {record.levelname} {record.name}: {text}"


class JsonFormatter(logging.Formatter):
    """One JSON object a line: ``time``, ``level``, ``logger``, ``message``, and ``exception`` where there is one.

    Unprintable characters are escaped.
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
    """Passes an event once a minute; the next event has the number of suppressed ones."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[tuple[str, int], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to pass ``record``. Records of one line of code are the same event."""
        place = record.pathname, record.lineno
        at, suppressed = self._last.get(place, (-math.inf, 0))
        # A clock that is set back must not suppress events for longer.
        if abs(record.created - at) < 60:
            self._last[place] = at, suppressed + 1
            return False
        self._last[place] = record.created, 0
        if suppressed:
            record.msg, record.args = f"{record.getMessage()} ({suppressed} more since the last one)", None
        return True


class _StandardError(logging.StreamHandler[TextIO]):
    """Writes to what standard error is now: on a terminal a command may show there what it waits for."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override] # as logging.lastResort does
        """Return standard error."""
        return sys.stderr


def set_up_logging(level: str, form: str) -> None:
    """Log to standard error from ``level`` on; ``form`` is ``text`` or ``json``.

    Other packages log from WARNING on only: those of AWS log credentials and signatures at debug level.
    """
    handler = _StandardError()
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    # The level of the root is not enough: a package may set one of its own.
    handler.addFilter(lambda record: record.levelno >= logging.WARNING or _is_ours(record.name))
    own = logging.getLogger(_OURS)
    own.setLevel(level.upper())
    logging.basicConfig(level=max(own.level, logging.WARNING), handlers=[handler], force=True)
    logging.captureWarnings(capture=True)


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> list[str]:
    """Return the traceback of an event, also of one from another process; [] where there is none."""
    if record.exc_info:
        return [formatter.formatException(record.exc_info)]
    return [record.exc_text] if record.exc_text else []


def _is_ours(logger: str) -> bool:
    return logger.partition(".")[0] == _OURS


def _printable(line: str) -> str:
    if line.isprintable():
        return line
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in line)
