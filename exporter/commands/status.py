"""The command ``status``: what a running exporter says is dead, suspect, held by an incident or unreadable now."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, TextIO

from exporter.commands.api_client import ApiClient, ApiError
from exporter.commands.text_table import align
from exporter.domain.exit_codes import ExitCode
from exporter.domain.formatting import ago, duration, moment, plural
from exporter.domain.verdicts import OF_ALL_PARTITIONS, Verdict


class PlugIn(IntEnum):
    """The exit codes of monitoring plug-ins, for ``--format nagios`` alone. They differ from those of the commands."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


_ALARMING = (Verdict.DEAD, Verdict.SUSPECT)
_HEADS = ("CLUSTER", "TOPIC", "WHAT", "SILENT", "OWNER", "READERS", "EVIDENCE")
_INCIDENT, _UNREADABLE = "incident", "unreadable"
_NO_TOPIC = dict.fromkeys(("topic", "partition", "last_advance", "silence_seconds", "owner", "readers"))
"""No topic is an incident's own."""


@dataclass(frozen=True, slots=True)
class LivenessStatus:
    """What alarms now: a record for each topic, partition of a topic that lives, and incident.

    Moments are Unix seconds.
    """

    source: str
    as_of: float
    items: Sequence[Mapping[str, Any]]
    not_read: Mapping[str, str] = field(default_factory=dict)
    """Clusters of which nothing is known now, and why."""
    not_judged: str | None = None
    """Why nothing can be dead: no expectations are in force. None where they are."""

    @property
    def counts(self) -> Mapping[str, int]:
        """How many items are dead, suspect, incidents and unreadable."""
        counted = Counter(item["what"] for item in self.items)
        return {what: counted[what] for what in (*map(str, _ALARMING), _INCIDENT, _UNREADABLE)}

    @property
    def plug_in(self) -> PlugIn:
        """CRITICAL where anything is dead or an incident, else UNKNOWN where not all is read, else WARNING for any."""
        counts = self.counts
        if counts[Verdict.DEAD] or counts[_INCIDENT]:
            return PlugIn.CRITICAL
        if self.not_read or self.not_judged:
            return PlugIn.UNKNOWN
        return PlugIn.WARNING if any(counts.values()) else PlugIn.OK

    def code(self, style: str) -> ExitCode | PlugIn:
        """Return the exit code of the command: FOUND where anything is listed, or not all is read and judged."""
        if style == "nagios":
            return self.plug_in
        return ExitCode.FOUND if self.items or self.not_read or self.not_judged else ExitCode.DONE


def read_status(client: ApiClient, cluster: str | None) -> LivenessStatus:
    """Ask a running exporter, about one cluster or all. Raises ApiError."""
    try:
        return _read_status(client, cluster)
    except (KeyError, TypeError) as error:
        text = f"{client.shown} does not answer as an exporter of this version does: {error!r}"
        raise ApiError(f"{text}. Check --url, and the version of both") from None


def _read_status(client: ApiClient, cluster: str | None) -> LivenessStatus:
    known = client.ask("clusters")
    names = [one["cluster"] for one in known["clusters"]]
    if cluster not in (None, *names):  # a misspelt name must not look like health
        raise ApiError(f"--cluster must be one of {', '.join(names)}, got {cluster!r}")
    chosen = [] if cluster is None else [("cluster", cluster)]
    alarming = [("verdict", str(verdict)) for verdict in _ALARMING]
    items: list[Mapping[str, Any]] = []
    of_all = [("verdict", str(verdict)) for verdict in OF_ALL_PARTITIONS]
    first, topics = client.read_all_items("topics", [*chosen, *of_all])
    seen = {(topic["cluster"], topic["topic"]) for topic in topics}
    items += [
        {**topic, "partition": None, "what": topic["verdict"]} for topic in topics if topic["verdict"] in _ALARMING
    ]
    items += [
        {**partition, "readers": None, "what": partition["verdict"]}
        for partition in client.read_all_items("partitions", [*chosen, *alarming])[1]
        if (partition["cluster"], partition["topic"]) not in seen
    ]
    items += [
        {**_NO_TOPIC, **one, "what": _INCIDENT, "incident": one["name"]}
        for one in client.read_all_items("incidents", chosen)[1]
    ]
    for topic in client.read_all_items("topics", [*chosen, ("state", _UNREADABLE)])[1]:
        count = topic["states"][_UNREADABLE]
        evidence = f"{count} of {topic['partitions']} partitions cannot be read"
        items.append({**topic, "partition": None, "what": _UNREADABLE, "evidence": evidence})
    not_judged = None if known["expectations_in_force"] else _not_judged(known["expectations_as_of"])
    return LivenessStatus(client.shown, first["as_of"], [_item(item) for item in items], first["not_read"], not_judged)


def _not_judged(as_of: float | None) -> str:
    if as_of is None:
        return "no expectations are published: run `topic-liveness rollup`"
    return (
        f"the expectations are as of {moment(as_of)}, too long ago or ahead of the clock: run `topic-liveness rollup`"
    )


def write(out: TextIO, status: LivenessStatus, style: str, now: float) -> None:
    """Write it as ``table``, ``json`` or one ``nagios`` line."""
    if style == "json":
        head = {
            "source": status.source,
            "as_of": status.as_of,
            "not_read": status.not_read,
            "not_judged": status.not_judged,
            "counts": status.counts,
        }
        json.dump({**head, "items": status.items}, out, indent=2)
        out.write("\n")
    elif style == "nagios":
        out.write(nagios(status) + "\n")
    else:
        out.writelines(f"{line}\n" for line in _table(status, now))


def nagios(status: LivenessStatus) -> str:
    """Return one line for a monitoring plug-in, with performance data behind a bar."""
    counts = ", ".join(f"{count} {what}" for what, count in status.counts.items())
    names = [_subject(item) for item in status.items if item["what"] in (_INCIDENT, Verdict.DEAD)][:3]
    more = f" ({', '.join(names)})" if names else ""
    unread = "".join(f"; {cluster} is not read" for cluster in status.not_read)
    unread += "; verdicts are not known" if status.not_judged else ""
    data = " ".join(f"{what}={count}" for what, count in status.counts.items())
    return f"{status.plug_in.name}: {counts}{more}{unread} | {data}"


def _table(status: LivenessStatus, now: float) -> Iterator[str]:
    yield f"{status.source}, as of {moment(status.as_of)} ({ago(now - status.as_of)})"
    for cluster, why in status.not_read.items():
        yield f"cluster {cluster} is not read: {why}"
    if status.not_judged:
        yield f"verdicts are not known: {status.not_judged}"
    if not status.items:
        if not status.not_judged:
            yield "nothing is dead, suspect, held by an incident or unreadable"
        return
    yield from align([_HEADS, *(_row(item) for item in status.items)])


def _row(item: Mapping[str, Any]) -> tuple[str, ...]:
    silent, readers = item["silence_seconds"], item["readers"]
    return (
        item["cluster"],
        _subject(item),
        item["what"],
        "" if silent is None else duration(silent),
        item["owner"] or "",
        "" if readers is None else str(readers),
        item["evidence"],
    )


def _subject(item: Mapping[str, Any]) -> str:
    if item["what"] == _INCIDENT:
        return plural(len(item["topics"]), "topic")
    topic: str = item["topic"]
    return topic if item["partition"] is None else f"{topic}:{item['partition']}"


def _item(item: Mapping[str, Any]) -> Mapping[str, Any]:
    names = ("cluster", "topic", "partition", "what", "evidence", "last_advance", "silence_seconds", "owner", "readers")
    return {**{name: item[name] for name in names}, "incident": item.get("incident"), "topics": item.get("topics")}
