"""The message of a report to one recipient, read from the JSON form of the report."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from functools import partial
from operator import eq
from pathlib import Path
from typing import Annotated
from urllib.parse import quote
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from exporter.domain.formatting import moment, named, plural
from exporter.domain.links import Links
from exporter.storage import Location, file_info, opened

REPORT = "liveness.json"
PAGE = "liveness.html"

_SECTIONS = ("newly-dead", "suspect", "still-dead", "revived", "unreadable")
"""Sections of the report that messages contain, in this order."""

_OF_SILENCE = ("newly-dead", "suspect", "still-dead")
"""Those in which it matters since when, and who reads it."""

_OF_CUT_OFF = "Look at the replication (MirrorMaker, Cluster Linking), not at the producer."


class ReportFileError(Exception):
    """There is no report that can be sent; the text names the file, the cause and the next step."""


class _Read(BaseModel):
    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)


class _Count(_Read):
    topics: int
    partitions: int


class _Counts(_Read):
    died: _Count


class _Finding(_Read):
    partition: int | None
    evidence: str
    plain: str
    dead_since: datetime | None
    expected_by: datetime | None


class _Relations(_Read):
    text: Annotated[str, Field(alias="told")]
    readers: tuple[str, ...] | None
    replica_of: str | None


class _Topic(_Read):
    cluster: str
    topic: str
    owner: str | None
    evidence: str
    plain: str
    dead_since: datetime | None
    relations: _Relations


class _Entry(_Read):
    cluster: str
    topic: str
    owner: str | None
    findings: Annotated[tuple[_Finding, ...], Field(min_length=1)]
    relations: _Relations


class _Section(_Read):
    key: str
    title: str
    advice: str
    entries: tuple[_Entry, ...]


class _Part(_Read):
    owner: str | None
    summary: str
    counts: _Counts
    html: str | None


class Report(_Read):
    """What is sent of a report; its other fields are for programs and pages."""

    as_of: datetime
    summary: str
    counts: _Counts
    warnings: tuple[str, ...]
    sections: tuple[_Section, ...]
    owners: tuple[_Part, ...]
    candidates: tuple[_Topic, ...]
    cut_off: tuple[_Topic, ...]
    zone: str

    @property
    def time_zone(self) -> tzinfo:
        """The zone in which moments are shown; UTC where this host does not know it."""
        try:
            return ZoneInfo(self.zone)
        except (ZoneInfoNotFoundError, ValueError):
            return UTC

    @property
    def newly_dead(self) -> bool:
        """Whether anything died in the week of the report."""
        return bool(self.counts.died.topics or self.counts.died.partitions)


@dataclass(frozen=True, slots=True)
class Item:
    """A topic, or partitions of one that lives, and why it is listed.

    ``text`` is for people: since when it is dead, the reason for that, and who reads it. ``evidence`` is exact.
    ``readers`` are the names of the first consumer groups, None where they are not known.
    """

    cluster: str
    topic: str
    partitions: tuple[int, ...]
    text: str
    evidence: str
    dead_since: datetime | None
    readers: tuple[str, ...] | None

    @property
    def name(self) -> str:
        """Cluster, topic and partitions in one text."""
        which = f", {named('partition', self.partitions, 10)}" if self.partitions else ""
        return f"{self.cluster}/{self.topic}{which}"


@dataclass(frozen=True, slots=True)
class Group:
    """Items under one heading, and what to do about them."""

    key: str
    title: str
    advice: str
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Message:
    """What one recipient gets: everything, or what is ``owner``'s."""

    as_of: datetime
    owner: str | None
    subject: str
    summary: str
    warnings: tuple[str, ...]
    groups: tuple[Group, ...]
    links: tuple[tuple[str, str], ...]
    """Labels and addresses."""
    page: Location | None
    """The HTML of it."""


def read_report(folder: Location) -> Report:
    """Read the report in a folder. Raises ReportFileError."""
    path = folder / REPORT
    try:
        with opened(path) as file:
            return Report.model_validate_json(file.read())
    except OSError as error:
        raise ReportFileError(f"{path} cannot be read: {error.strerror}. Run `topic-liveness report` first") from None
    except ValidationError as error:
        place = ".".join(map(str, error.errors()[0]["loc"]))
        raise ReportFileError(
            f"{path} is no report of this version ({place or 'no JSON'}). Run `topic-liveness report` again"
        ) from None


def whole(report: Report, folder: Location, links: Links) -> Message:
    """Return the message of the whole report. Raises ReportFileError."""
    return Message(
        as_of=report.as_of,
        owner=None,
        subject=_subject(report, None, report.counts),
        summary=report.summary,
        warnings=report.warnings,
        groups=tuple(_groups(report, lambda _: True)),
        links=tuple(_links(links)),
        page=_page(folder, PAGE),
    )


def owner_messages(report: Report, folder: Location, links: Links) -> Iterator[Message]:
    """Yield the message of each owner that has something to do. Raises ReportFileError."""
    for part in report.owners:
        groups = tuple(_groups(report, partial(eq, part.owner)))
        if part.owner is None or not groups:
            continue
        page = None if part.html is None else _page(folder, part.html)
        yield Message(
            as_of=report.as_of,
            owner=part.owner,
            subject=_subject(report, part.owner, part.counts),
            summary=part.summary,
            warnings=report.warnings,
            groups=groups,
            links=tuple(_links(links, None if page is None else part.html)),
            page=page,
        )


def _page(folder: Location, name: str) -> Location | None:
    """Return a page of the report, None where it is not there or lies outside of the folder."""
    page = folder / name
    if isinstance(page, Path):
        within = page.resolve().is_relative_to(folder.resolve()) if isinstance(folder, Path) else False
    else:
        within = not page.path.is_absolute() and ".." not in page.path.parts
    try:
        return page if within and file_info(page) is not None else None
    except OSError as error:
        raise ReportFileError(f"{page} cannot be read: {error.strerror}. Run `topic-liveness deliver` again") from None


def _subject(report: Report, owner: str | None, counts: _Counts) -> str:
    died = counts.died
    day = f"{report.as_of.astimezone(report.time_zone):%Y-%m-%d}"
    deaths = [plural(died.topics, "topic")] if died.topics else []
    deaths += [plural(died.partitions, "partition")] if died.partitions else []
    of_owner = "" if owner is None else f"{' '.join(owner.split())}: "
    return f"Topic liveness {day}: {of_owner}{' and '.join(deaths) or 'nothing'} died"


def _groups(report: Report, mine: Callable[[str | None], bool]) -> Iterator[Group]:
    sections, zone = {section.key: section for section in report.sections}, report.time_zone
    for key in _SECTIONS:
        section = sections.get(key)
        items = () if section is None else tuple(_item(key, one, zone) for one in section.entries if mine(one.owner))
        if section is not None and items:
            yield Group(key, section.title, section.advice, items)
    for key, title, advice, topics in (
        (
            "candidates",
            "May be deleted",
            "Dead for long, and read by nobody. The report has the commands.",
            report.candidates,
        ),
        ("cut-off", "Copies cut off from their source", _OF_CUT_OFF, report.cut_off),
    ):
        items = tuple(_topic_item(one, zone) for one in topics if mine(one.owner))
        if items:
            yield Group(key, title, advice, items)


def _item(section: str, entry: _Entry, zone: tzinfo) -> Item:
    """Return the item of an entry, with the text of the partition that is overdue for longest."""
    partitions = tuple(sorted(one.partition for one in entry.findings if one.partition is not None))
    first = min(entry.findings, key=lambda one: (one.expected_by is None, one.expected_by))
    since, sentences = first.dead_since, [first.plain]
    if section in _OF_SILENCE:
        since = since or (None if section == "suspect" else first.expected_by)
        if since is None and first.expected_by is not None:
            sentences = [f"Dead from {_moment(first.expected_by, zone)}, unless it is written.", *sentences]
        sentences = [*_dead(since, zone), *sentences, _sentence(entry.relations.text)]
    text, readers = " ".join(sentences), entry.relations.readers
    return Item(entry.cluster, entry.topic, partitions, text, first.evidence, since, readers)


def _topic_item(topic: _Topic, zone: tzinfo) -> Item:
    around = topic.relations
    copy = [] if around.replica_of is None else [f"A copy of {around.replica_of}."]
    text = " ".join([*copy, *_dead(topic.dead_since, zone), topic.plain, _sentence(around.text)])
    return Item(topic.cluster, topic.topic, (), text, topic.evidence, topic.dead_since, topic.relations.readers)


def _dead(since: datetime | None, zone: tzinfo) -> list[str]:
    return [] if since is None else [f"Dead since {_moment(since, zone)}."]


def _moment(at: datetime, zone: tzinfo) -> str:
    return moment(at.timestamp(), zone=zone)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _links(links: Links, page: str | None = None) -> Iterator[tuple[str, str]]:
    if links.exporter is not None and page is not None:
        yield "This part of the last report", f"{links.exporter}/report/{quote(page)}"
    elif links.exporter is not None:
        yield "The last report", f"{links.exporter}/report"
    if links.dashboard is not None:
        yield "Dashboard", links.dashboard
    if links.runbook is not None:
        yield "What to do", links.runbook
