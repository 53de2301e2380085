"""Upkeep of the history folder: what a rollup published is read, and the spool stays within its limits."""

from __future__ import annotations

import logging
import traceback

from exporter.delivery.send import reached_all
from exporter.domain.ports import Clock
from exporter.history.published import Expectations
from exporter.history.spool import Spool
from exporter.settings.schema import Settings
from exporter.state.monitor import Monitor

log = logging.getLogger(__name__)

SPOOL_SECONDS = 14 * 86400.0
"""Files already rolled up are deleted after that, and state files that no exporter has written since."""


class HistoryUpkeep:
    """The steps of upkeep, which the monitor shows with what fails in them."""

    def __init__(
        self, settings: Settings, monitor: Monitor, expectations: Expectations, spool: Spool | None, clock: Clock
    ) -> None:
        """Without a ``spool`` history is not written."""
        self._settings = settings
        self._monitor = monitor
        self._expectations = expectations
        self._spool = spool
        self._clock = clock

    def run(self) -> None:
        """Read published expectations and limit the spool; a failure of one step does not prevent the other."""
        for step, run in (("expectations", self._take_expectations), ("spool", self._keep_in_bounds)):
            problem, frames = "", ""
            try:
                run()
            except OSError as error:
                problem = f"{error.filename or self._settings.history.folder}: {error.strerror}"
            except Exception as error:  # noqa: BLE001 - the scheduler would only log it; a metric and the status page must show it
                # Its text may quote anything, also a secret.
                problem = f"an internal error ({type(error).__name__}); next step: report what the log says"
                frames = "\n" + "".join(traceback.format_tb(error.__traceback__)).rstrip()
            if problem:
                problem = f"upkeep of the history, {step}: {problem}"
            if problem and self._monitor.upkeep_problems.get(step) != problem:
                log.error("%s%s", problem, frames)
            self._monitor.take_upkeep(step, problem)

    def _take_expectations(self) -> None:
        self._expectations.refresh()
        self._monitor.take_expectations(self._expectations.published, self._expectations.problem)
        counts = reached_all if self._settings.delivery.recipients else None
        self._monitor.take_report(self._expectations.reported_at(counts))

    def _keep_in_bounds(self) -> None:
        if self._spool is None or not self._spool.upkeep_is_due(self._clock.monotonic()):
            return
        self._spool.remove_unfinished()
        self._spool.expire(older_than=self._clock.now() - SPOOL_SECONDS)
        self._monitor.take_spool_loss(self._spool.shrink(self._settings.history.max_bytes))
