"""Errors of object storage as those of the operating system, with a cause of few words."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from exporter.storage.files import ObjectPath

_AWS_ERROR = re.compile(r"AWS Error (?P<code>[A-Z_]+)(?:.*ExceptionName: (?P<name>\w+))?")
_REFUSED = re.compile(
    "access|credential|expired|forbidden|identity|signature|skewed|token|unauthori|user", re.IGNORECASE
)
_ABSENT = {"NO_SUCH_BUCKET", "NO_SUCH_KEY"}
_SILENT = {"NETWORK_CONNECTION", "REQUEST_TIMEOUT", "SERVICE_UNAVAILABLE", "SLOW_DOWN", "THROTTLING"}


@contextmanager
def raise_os_errors(path: Path | ObjectPath) -> Iterator[None]:
    """Turn pyarrow's errors of object storage into OSErrors with a cause of few words, and no text of a request."""
    try:
        yield
    except OSError as error:
        if isinstance(path, Path):
            raise
        found = _AWS_ERROR.search(str(error))
        code = (found["name"] or found["code"]) if found else ""
        if isinstance(error, FileNotFoundError) or code in _ABSENT:
            number, cause = errno.ENOENT, "there is no such bucket or object"
        elif isinstance(error, PermissionError) or _REFUSED.search(code):
            number, cause = errno.EACCES, "the storage refuses access"
        elif isinstance(error, TimeoutError) or code in _SILENT:
            number, cause = errno.ETIMEDOUT, "the storage does not answer"
        else:
            number, cause = errno.EIO, "the storage failed"
        raise OSError(number, f"{cause} ({code})" if code else cause, str(path)) from None


@contextmanager
def storage_calls(path: Path | ObjectPath) -> Iterator[None]:
    """Turn whatever pyarrow raises for the state of object storage into OSErrors, as ``raise_os_errors`` does.

    For some states of GCS and Azure it raises errors of its own: for HTTP 400, and without a token.
    """
    from pyarrow import ArrowException  # noqa: PLC0415 - as above

    try:
        with raise_os_errors(path):
            yield
    except ArrowException as error:
        if isinstance(error, OSError):
            raise
        # Its text may quote a request.
        raise OSError(errno.EIO, f"the storage failed ({type(error).__name__})", str(path)) from None
