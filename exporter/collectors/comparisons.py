"""Compares a pair of clusters whenever both were polled again."""

from __future__ import annotations

import logging
from collections.abc import Callable

from exporter.collectors.replicas import ReplicaWatch
from exporter.domain.polls.readings import Reason
from exporter.domain.ports import SourceError
from exporter.domain.replicas.comparison import Comparison, NotCompared

log = logging.getLogger(__name__)


class Comparisons:
    """Compares a pair of clusters after new polls, and logs each failure once."""

    def __init__(
        self,
        watch: ReplicaWatch,
        take: Callable[[Comparison], None],
        fail: Callable[[Reason, Comparison | None], None],
        stop: Callable[[], bool],
    ) -> None:
        """``fail`` gets why there was no comparison, and the last one as unknown."""
        self._watch, self._take, self._fail, self._stop = watch, take, fail, stop
        self._last: Comparison | None = None
        self._trouble = ""

    def __call__(self) -> bool:
        """Compare them; return False where neither was polled since."""
        try:
            comparison = self._watch.compare(self._stop)
        except SourceError as error:
            if self._stop():  # its connection is closed
                return False
            if self._trouble != error.detail:
                log.error("replicas of %s in %s: %s", self._watch.source, self._watch.target, error.detail)
            self._trouble = error.detail
            self._failed(error.reason)
            return True
        except Exception:
            self._failed(Reason.OTHER)
            raise
        if comparison is None:
            return False
        self._last, self._trouble = comparison, ""
        self._take(comparison)
        return True

    def _failed(self, reason: Reason) -> None:
        self._fail(reason, None if self._last is None else self._last.unread(NotCompared.LOOKUP_FAILED))
