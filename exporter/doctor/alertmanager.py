"""Checks that the Alertmanager whose acknowledgements count answers; nothing is changed there."""

from __future__ import annotations

from collections.abc import Iterator

from exporter.commands.acknowledgements import AlertmanagerError, read_acknowledgements
from exporter.doctor.delivery import open_to_all
from exporter.doctor.findings import Finding, Severity, from_error
from exporter.domain.formatting import plural
from exporter.domain.ports import Clock
from exporter.settings import Settings

_CHECK = "alertmanager"
_COSTS = "acknowledged alerts count as false alarms; where rollups run on another host, see there"


def alertmanager(settings: Settings, clock: Clock) -> Iterator[Finding]:  # noqa: ARG001 - as all checks of this host
    """Check that `rollup.alertmanager` answers, and that nobody else can read its secret.

    Yields nothing where the configuration names no Alertmanager.
    """
    configured = settings.rollup.alertmanager
    if configured is None:
        return
    if configured.authorization is not None:
        yield from open_to_all(
            _CHECK, [configured.authorization.file], "who reads it may ask Alertmanager in your name"
        )
    try:
        acknowledged = read_acknowledgements(settings)
    except AlertmanagerError as error:
        yield from_error(_CHECK, Severity.WARNING, str(error), _COSTS)
        return
    count = len({one.silence_id for one in acknowledged.found})
    what = f"{configured.url} answers, with {plural(count, 'acknowledged alert')}"
    warning = acknowledged.warning()
    if warning is None:
        yield Finding(_CHECK, Severity.OK, what)
    else:
        fix = "name their topics and kafka_cluster by `=`, and no other label"
        yield Finding(_CHECK, Severity.NOTE, f"{what}; {warning}", "they count as false alarms", fix)
