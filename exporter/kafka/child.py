"""What runs in a process with Kafka clients (``exporter.kafka.process``), which alone loads librdkafka."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from operator import attrgetter
from pkgutil import resolve_name
from typing import Any

from exporter.domain.polls.readings import Reason
from exporter.domain.ports import SourceError
from exporter.kafka.kafka_python_answers import KafkaPythonError

log = logging.getLogger(__name__)


class ServedClient:
    """A client in this process, made when it is called first. Not for several threads, unless the client is."""

    def __init__(self, kind: str, settings: Mapping[str, Any], before: Any) -> None:
        """``kind`` is ``module:class``; the client goes on from the metadata that the exporter had ``before``."""
        self._kind, self._settings = kind, settings
        self._before = before
        self._client: Any = None

    def call(self, path: str, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
        """Return what a method or attribute of the client gives; None for metadata that the exporter has already.

        Raises SourceError, ValueError or KafkaPythonError.
        """
        try:
            if self._client is None:
                self._client = resolve_name(self._kind)(**self._settings)
                if self._before is not None:
                    self._client.resume_from(self._before)
            found = attrgetter(path)(self._client)
            result = found(*arguments, **keywords) if callable(found) else found
        except (SourceError, ValueError, KafkaPythonError) as error:
            raise error.with_traceback(None) from None
        except Exception as error:
            log.exception("a call of a Kafka client failed with an internal error")
            # Its text may quote anything, also a secret.
            detail = f"an internal error ({type(error).__name__}); the log has its traceback; next step: report it"
            raise SourceError(Reason.OTHER, detail) from None
        if path == "metadata":
            if result is self._before:
                return None
            self._before = result
        return result

    def close(self) -> None:
        """Close the client."""
        if self._client is not None:
            self._client.close()
