"""Reads from Alertmanager which alerts of dead topics people acknowledged."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

import httpx
from pydantic import AwareDatetime, BaseModel, Field, TypeAdapter, ValidationError

from exporter.domain import Acknowledgement
from exporter.secret_files import header_in, trusting
from exporter.settings import Settings
from exporter.settings.rollup import AlertmanagerSettings

ALERTS = ("TopicLivenessTopicDead", "TopicLivenessTopicSuspect", "TopicLivenessPartitionsDead")
"""Whoever acknowledges one of these says that the topic was really out."""

MARK = "ACK!"
"""What the comment of an acknowledgement begins with, as karma writes it."""

_TIMEOUT_SECONDS = 10.0
_LONGEST_SECONDS = 60.0
_LARGEST_BYTES = 64 * 2**20


class AlertmanagerError(Exception):
    """Alertmanager did not tell its silences; the text says why and what to do, and holds no secret."""


class _Matcher(BaseModel):
    name: str
    value: str
    is_regex: Annotated[bool, Field(alias="isRegex")]
    is_equal: Annotated[bool, Field(alias="isEqual")] = True

    def fits(self, label: str) -> bool:
        """Raises re.error for a pattern that Python does not know."""
        found = re.fullmatch(self.value, label) is not None if self.is_regex else self.value == label
        return found == self.is_equal


class _Silence(BaseModel):
    id: str
    comment: str
    matchers: list[_Matcher]
    starts_at: Annotated[AwareDatetime, Field(alias="startsAt")]


_SILENCES = TypeAdapter(list[_Silence])


def read_acknowledgements(settings: Settings, now: datetime | None = None) -> list[Acknowledgement]:
    """Return the acknowledgements that Alertmanager still knows, none where the configuration names no Alertmanager.

    A silence is one where it has begun, its comment begins with ``ACK!``, and its matchers fit one of ALERTS and name
    topics by one matcher that is no negation. Raises AlertmanagerError.
    """
    alertmanager = settings.rollup.alertmanager
    if alertmanager is None:
        return []
    try:
        silences = _SILENCES.validate_json(_asked(alertmanager))
    except ValidationError:
        raise AlertmanagerError(
            f"{alertmanager.url} does not answer as Alertmanager does; next step: check rollup.alertmanager.url"
        ) from None
    clusters, now = [cluster.name for cluster in settings.clusters], now or datetime.now(UTC)
    return [one for silence in silences if silence.starts_at <= now for one in _of(silence, clusters)]


def _of(silence: _Silence, clusters: Sequence[str]) -> list[Acknowledgement]:
    by_name: dict[str, list[_Matcher]] = {}
    for matcher in silence.matchers:
        by_name.setdefault(matcher.name, []).append(matcher)
    alerts, topics, of_clusters = (by_name.get(name, []) for name in ("alertname", "topic", "kafka_cluster"))
    if not silence.comment.startswith(MARK) or not alerts or len(topics) != 1 or not topics[0].is_equal:
        return []
    try:
        if not any(all(matcher.fits(alert) for matcher in alerts) for alert in ALERTS):
            return []
        pattern = topics[0].value if topics[0].is_regex else re.escape(topics[0].value)
        re.compile(pattern)
        named = [name for name in clusters if all(matcher.fits(name) for matcher in of_clusters)]
    except re.error:
        return []
    at = silence.starts_at.timestamp()
    return [Acknowledgement(silence.id, pattern, at, cluster) for cluster in (named if of_clusters else [None])]


def _asked(alertmanager: AlertmanagerSettings) -> bytes:
    place, until, told = alertmanager.url, time.monotonic() + _LONGEST_SECONDS, bytearray()
    try:
        headers = {}
        if alertmanager.authorization is not None:
            headers["Authorization"] = header_in(alertmanager.authorization.file)
        with (
            httpx.Client(verify=trusting(alertmanager.ca_file), timeout=_TIMEOUT_SECONDS) as client,
            client.stream("GET", f"{place.rstrip('/')}/api/v2/silences", headers=headers) as answer,
        ):
            if not answer.is_success:
                raise AlertmanagerError(
                    f"{place} answered {answer.status_code} {answer.reason_phrase} for its silences; next step: check "
                    "rollup.alertmanager.url and authorization"
                )
            for piece in answer.iter_bytes():
                told += piece
                if len(told) > _LARGEST_BYTES or time.monotonic() > until:
                    raise AlertmanagerError(
                        f"{place} did not tell its silences within {_LONGEST_SECONDS:g} s and {_LARGEST_BYTES:,} "
                        "bytes; next step: see whether it is slow"
                    )
    except ValueError as error:
        raise AlertmanagerError(f"rollup.alertmanager: {error}") from None
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        raise AlertmanagerError(
            f"{place} cannot be asked: {str(error) or type(error).__name__}; next step: check "
            "rollup.alertmanager.url and ca_file"
        ) from None
    return bytes(told)
