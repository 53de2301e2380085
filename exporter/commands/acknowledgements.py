"""Reads from Alertmanager which alerts of dead topics people acknowledged."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated

import httpx
from pydantic import AwareDatetime, BaseModel, Field, TypeAdapter, ValidationError

from exporter.delivery.channels import within
from exporter.domain import Acknowledgement
from exporter.domain.owners import Owners
from exporter.factory import owners_of
from exporter.secret_files import header_in, trusting
from exporter.settings import Settings
from exporter.settings.rollup import AlertmanagerSettings
from exporter.settings.rules import check_regex

ALERTS = ("TopicLivenessTopicDead", "TopicLivenessTopicSuspect", "TopicLivenessPartitionsDead")
"""Whoever acknowledges one of these says that the topic was really out."""

MARK = "ACK!"
"""What the comment of an acknowledgement begins with, as karma writes it."""

_NAMED = ("alertname", "topic", "kafka_cluster")
"""Labels whose matchers select the topics and clusters that were out."""

_TIMEOUT_SECONDS = 10.0
_LONGEST_SECONDS = 60.0
_LARGEST_BYTES = 64 * 2**20

_LONGEST_PATTERN, _MOST_REPEATS = 1_000, 4
"""Python tries out what a pattern may repeat, so a pattern of many repeats takes hours for a name of 60 letters."""

_ESCAPED_OR_CLASS = re.compile(r"\\.|\[[^\]]*\]", re.DOTALL)
_REPEAT, _REPEATED_GROUP = re.compile(r"[*+{]"), re.compile(r"\)[*+{]")
_NAME = r"(?:[^\\^$.*+?()\[\]{}|]|\.|\\\W)+"
_NAMES = re.compile(rf"\^?(?:\((?:\?:)?)?({_NAME}(?:\|{_NAME})*)\)?\$?")

_NO_ALERT = "name topics and no alert (alertname), so that they may mean another one"
_NO_TOPIC = "name topics by no matcher, by a negation or by several"
_PATTERN = "have a pattern that is not used"
_NO_CLUSTERS = "name clusters by a pattern or a negation, and the configuration names no clusters"


class AlertmanagerError(Exception):
    """Alertmanager did not return its silences; the text says why and what to do, and holds no secret."""


class _LeftOutError(Exception):
    """An acknowledgement does not count; the text says why, of several of them."""


class _Matcher(BaseModel):
    name: str
    value: str
    is_regex: Annotated[bool, Field(alias="isRegex")]
    is_equal: Annotated[bool, Field(alias="isEqual")] = True

    def fits(self, label: str) -> bool:
        """Raises _LeftOutError for a pattern that is not used."""
        found = re.fullmatch(self.pattern(), label) is not None
        return found == self.is_equal

    def pattern(self) -> str:
        """Return what matches the values, as a pattern for whole labels. Raises _LeftOutError."""
        if not self.is_regex:
            return re.escape(self.value)
        bare = _ESCAPED_OR_CLASS.sub("_", self.value)
        repeats = len(_REPEAT.findall(bare))
        if self.names() is None and (len(self.value) > _LONGEST_PATTERN or repeats > _MOST_REPEATS):
            raise _LeftOutError(_PATTERN)
        if _REPEATED_GROUP.search(bare):
            raise _LeftOutError(_PATTERN)
        try:
            return check_regex(self.value)
        except ValueError:
            raise _LeftOutError(_PATTERN) from None

    def names(self) -> list[str] | None:
        """Return the values where each is written out, be it in a pattern such as ``(a|b)``; else None."""
        if not self.is_equal:
            return None
        if not self.is_regex:
            return [self.value]
        match = _NAMES.fullmatch(self.value)
        return None if match is None else [re.sub(r"\\(.)", r"\1", name) for name in match[1].split("|")]


class _Silence(BaseModel):
    id: str
    comment: str
    matchers: list[_Matcher]
    starts_at: Annotated[AwareDatetime, Field(alias="startsAt")]
    ends_at: Annotated[AwareDatetime, Field(alias="endsAt")]


_SILENCES = TypeAdapter(list[_Silence])


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The acknowledgements in the silences of Alertmanager."""

    found: Sequence[Acknowledgement] = ()
    withdrawn: Sequence[str] = ()
    """The ids of all its other silences: one that counted before does so no more."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Why some do not count, and how many."""

    def warning(self) -> str | None:
        """Return one line on what does not count and why, None where everything counts."""
        if not self.left_out:
            return None
        reasons = "; ".join(f"{count} {why}" for why, count in sorted(self.left_out.items()))
        return f"acknowledged alerts that do not count (docs/configuration.md#acknowledged-alerts): {reasons}"


def read_acknowledgements(settings: Settings, now: datetime | None = None) -> Acknowledged:
    """Return what Alertmanager still knows, nothing where the configuration names no Alertmanager.

    A silence is an acknowledgement where it has begun, its comment begins with ``ACK!``, its matchers fit one of
    ALERTS and name topics by one matcher that is no negation, and no other matcher separates some of these topics
    from others. Raises AlertmanagerError.
    """
    alertmanager = settings.rollup.alertmanager
    if alertmanager is None:
        return Acknowledged()
    try:
        silences = _SILENCES.validate_json(_fetch_silences(alertmanager))
    except ValidationError:
        raise AlertmanagerError(
            f"{alertmanager.url} does not answer as Alertmanager does; next step: check rollup.alertmanager.url"
        ) from None
    clusters, now = settings.cluster_names, now or datetime.now(UTC)
    owners = owners_of(settings) if settings.owners else None
    found: list[Acknowledgement] = []
    withdrawn: list[str] = []
    left_out: Counter[str] = Counter()
    for silence in silences:
        try:
            mine = _of(silence, clusters, owners, now)
        except _LeftOutError as why:
            left_out[str(why)] += 1
            mine = []
        found += mine
        withdrawn += [] if mine else [silence.id]
    return Acknowledged(found, withdrawn, left_out)


def _of(silence: _Silence, clusters: Sequence[str], owners: Owners | None, now: datetime) -> list[Acknowledgement]:
    """Return the acknowledgements that a silence is, none where it is something else. Raises _LeftOutError."""
    # Alertmanager ends a planned silence that is withdrawn at its beginning.
    begun = silence.starts_at <= now and silence.starts_at < silence.ends_at
    by_name: dict[str, list[_Matcher]] = {}
    for matcher in silence.matchers:
        by_name.setdefault(matcher.name, []).append(matcher)
    alerts, topics, of_clusters = (by_name.pop(name, []) for name in _NAMED)
    if not begun or not silence.comment.startswith(MARK):
        return []
    if not alerts:
        if any(matcher.is_equal for matcher in topics):
            raise _LeftOutError(_NO_ALERT)
        return []
    if not any(all(matcher.fits(alert) for matcher in alerts) for alert in ALERTS):
        return []
    if len(topics) != 1 or not topics[0].is_equal:
        raise _LeftOutError(_NO_TOPIC)
    pattern, names = topics[0].pattern(), topics[0].names()
    named = _named(of_clusters, clusters)
    at = silence.starts_at.timestamp()
    if not by_name:
        return [Acknowledgement(silence.id, pattern, at, name) for name in (named if of_clusters else [None])]
    others = [matcher for each in by_name.values() for matcher in each]
    written_out = names is not None and any(matcher.names() is not None for matcher in of_clusters)
    if names is None or not written_out or not all(matcher.is_equal for matcher in others):
        raise _LeftOutError(f"may mean only some of their topics, by {', '.join(sorted(by_name))}")
    owned = by_name.get("owner", []) if owners is not None else []
    found = []
    for cluster in named:
        mine = [name for name in names if _belongs(owners, cluster, name, owned)]
        if mine:
            owned_pattern = pattern if len(mine) == len(names) else "|".join(map(re.escape, mine))
            found.append(Acknowledgement(silence.id, owned_pattern, at, cluster))
    if named and not found:
        raise _LeftOutError("name an owner that none of their topics has by this configuration")
    return found


def _named(of_clusters: Sequence[_Matcher], configured: Sequence[str]) -> list[str]:
    """Return the clusters that the matchers fit: of those configured, and where none is, of those that they write out.

    Raises _LeftOutError.
    """
    candidates = configured
    if not configured and of_clusters:
        candidates = next((names for matcher in of_clusters if (names := matcher.names()) is not None), [])
        if not candidates:
            raise _LeftOutError(_NO_CLUSTERS)
    return [name for name in candidates if all(matcher.fits(name) for matcher in of_clusters)]


def _belongs(owners: Owners | None, cluster: str, topic: str, owned: Sequence[_Matcher]) -> bool:
    return owners is None or all(matcher.fits(owners.of(cluster, topic) or "") for matcher in owned)


def _fetch_silences(alertmanager: AlertmanagerSettings) -> bytes:
    """Return the answer for all silences. Raises AlertmanagerError."""
    place = alertmanager.url
    try:
        headers = {}
        if alertmanager.authorization is not None:
            headers["Authorization"] = header_in(alertmanager.authorization.file)
        with httpx.Client(verify=trusting(alertmanager.ca_file), timeout=_TIMEOUT_SECONDS) as client:
            return within(_LONGEST_SECONDS, lambda: _read(client, place, headers))
    except ValueError as error:
        raise AlertmanagerError(f"rollup.alertmanager: {error}") from None
    except ImportError:
        raise AlertmanagerError(
            f"{place} cannot be asked through a SOCKS proxy; next step: see ALL_PROXY and HTTPS_PROXY"
        ) from None
    except TimeoutError:
        raise _too_much(place) from None
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        raise AlertmanagerError(
            f"{place} cannot be asked: {str(error) or type(error).__name__}; next step: check "
            "rollup.alertmanager.url and ca_file"
        ) from None


def _read(client: httpx.Client, place: str, headers: Mapping[str, str]) -> bytes:
    body = bytearray()
    with client.stream("GET", f"{place.rstrip('/')}/api/v2/silences", headers=headers) as answer:
        if not answer.is_success:
            raise AlertmanagerError(
                f"{place} answered {answer.status_code} {answer.reason_phrase} for its silences; next step: check "
                "rollup.alertmanager.url and authorization"
            )
        for piece in answer.iter_bytes():
            body += piece
            if len(body) > _LARGEST_BYTES:
                raise _too_much(place)
    return bytes(body)


def _too_much(place: str) -> AlertmanagerError:
    return AlertmanagerError(
        f"{place} did not answer with its silences within {_LONGEST_SECONDS:g} s and {_LARGEST_BYTES:,} bytes; next "
        "step: check whether it is slow, or has very many silences"
    )
