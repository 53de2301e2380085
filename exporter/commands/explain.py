"""The command ``explain``: prints what a running exporter knows of a topic, or else what a rollup published of it."""

import json
import re
import time
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self, TextIO
from urllib.parse import quote

from exporter.commands.api_client import Access, ApiClient, ApiError, NotFoundError, exporter_here
from exporter.commands.explanation import explain, explain_changes
from exporter.domain.judging.current_facts import describe_expectation, make_record
from exporter.history.published import ExpectationsError, TopicRow, TopicRows, is_in_force, read_topic_rows
from exporter.settings.schema import Settings
from exporter.web.config_file import WebConfigError

UNASKED = "not asked, because --history names what is published"


class ExplainError(Exception):
    """Nothing is known of the topic. The message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The topic or partition to explain; ``partition`` None is the whole topic."""

    topic: str
    partition: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``TOPIC`` or ``TOPIC:PARTITION``. Raises ValueError with the rule."""
        match = re.fullmatch(r"([A-Za-z0-9._-]{1,249})(?::(\d{1,9}))?", text, re.ASCII)
        if match is None:
            raise ValueError("must be TOPIC or TOPIC:PARTITION, such as orders:3")
        return cls(match[1], None if match[2] is None else int(match[2]))


@dataclass(frozen=True, slots=True)
class Explanation:
    """What is known of a subject."""

    record: dict[str, Any]
    """As the API has it."""
    exporter: str
    """The address of the exporter that answered, or why none was asked."""
    answered: bool = True
    """False: everything is as of the rollup."""


def explanation_of(subject: Subject, settings: Settings, cluster: str | None, exporter: ApiClient | str) -> Explanation:
    """Ask a running exporter, else read the published files; ``exporter`` may be why none is asked.

    Raises ExplainError where nothing is known of the subject.
    """
    if isinstance(exporter, ApiClient):
        try:
            with exporter:
                return Explanation(_ask(exporter, subject, cluster), exporter.shown)
        except ApiError as error:
            exporter = str(error)
        except (KeyError, TypeError) as error:
            exporter = f"{exporter.shown} does not answer as an exporter of this version does: {error!r}"
    published, problem = None, None
    try:
        published = read_topic_rows(settings.history.folder, subject.topic)
    except ExpectationsError as error:
        problem = str(error)
    if published is None or not published.rows:
        raise ExplainError(_explain_unknown(settings, subject, published, problem, exporter))
    return Explanation(_read_published(published, subject, settings, cluster), exporter, answered=False)


def exporter_for(url: str | None, settings: Settings, access: Access) -> ApiClient | str:
    """Return a client of the exporter at ``url``, else of the one that these settings are for, on this host.

    Return why there is none where the settings do not say how to reach it. Raises ApiError for options that cannot be
    used.
    """
    if url is not None:
        return ApiClient(url, access)
    try:
        return exporter_here(settings.web, access)
    except WebConfigError as error:
        return f"not asked: web.config_file: {error}"


def write(out: TextIO, explanation: Explanation, style: str, now: float) -> None:
    """Write it as ``text`` or ``json``; ``now`` is the wall clock."""
    if style == "json":
        json.dump(explanation.record, out, indent=2)
        out.write("\n")
        return
    if explanation.answered:
        lines = [*explain(explanation.record, explanation.exporter, now), "", *explain_changes(explanation.record)]
    else:
        [title, *others] = explain(explanation.record, explanation.exporter, now)
        lines = [title, "as of the last rollup, because no exporter tells what is so now", *others]
    out.writelines(line.rstrip() + "\n" for line in lines)


def _ask(client: ApiClient, subject: Subject, cluster: str | None) -> dict[str, Any]:
    """Return the record of the API. Raises ApiError, and ExplainError where the cluster must be named."""
    known = {one["cluster"]: one for one in client.ask("clusters")["clusters"]}
    if cluster is None:
        found = client.ask("topics", [("topic", subject.topic)])["items"]
        cluster = _only(subject, {one["cluster"] for one in found} or set(known))
    elif cluster not in known:
        raise NotFoundError(f"{client.shown} has no cluster {cluster!r}: its clusters are {', '.join(sorted(known))}")
    place = [cluster, subject.topic, *([] if subject.partition is None else [str(subject.partition)])]
    try:
        return dict(client.ask("/".join(["explain", *(quote(each, safe="") for each in place)])))
    except NotFoundError as error:
        if known[cluster]["up"]:
            raise
        raise NotFoundError(f"{client.shown}: cluster {cluster}: {known[cluster]['condition']}") from error


def _only(subject: Subject, clusters: set[str]) -> str:
    if len(clusters) > 1:
        names = ", ".join(sorted(clusters))
        raise ExplainError(f"{subject.topic} may be in several clusters ({names}): choose one with --cluster NAME")
    return clusters.pop()


def _read_published(published: TopicRows, subject: Subject, settings: Settings, cluster: str | None) -> dict[str, Any]:
    """Return the record of what was published, as of the rollup. Raises ExplainError."""
    holding = {row.expectation.cluster for row in published.rows}
    if cluster is not None and cluster not in holding:
        raise ExplainError(f"--cluster must be one of {', '.join(sorted(holding))}, got {cluster!r}")
    cluster = _only(subject, holding) if cluster is None else cluster
    rows = {one.expectation.partition: one for one in published.rows if one.expectation.cluster == cluster}
    numbers = sorted(number for number in rows if number is not None)
    if (row := rows.get(subject.partition)) is None:
        partitions = f"{numbers[0]} to {numbers[-1]}" if numbers else "not published"
        raise ExplainError(f"{subject.topic} has no partition {subject.partition}: its partitions are {partitions}")
    usable = is_in_force(published.published.as_of, time.time(), settings.expectations.max_age)
    listed = numbers if subject.partition is None else []
    return make_record(
        cluster,
        subject.topic,
        subject.partition,
        as_of=row.expectation.as_of,
        **_published_verdict(row),
        missed_slots=row.further.get("missed_slots"),
        observed_until=_seconds(row.further.get("observed_until")),
        owner=settings.make_owners().get(cluster, subject.topic),
        expectation=describe_expectation(row.expectation, published.published.published_at, in_force=usable),
        partitions=[{"partition": number, **_published_verdict(rows[number])} for number in listed],
    )


def _published_verdict(row: TopicRow) -> dict[str, Any]:
    """Return the verdict as of the rollup, as ``describe_verdict`` does that of a poll."""
    found, more = row.expectation, row.further
    last, until = found.last_advance, _seconds(more.get("observed_until"))
    return {
        "verdict": found.verdict,
        "evidence": found.evidence,
        "incident": found.incident,
        "silence_score": more.get("silence_score"),
        "last_advance": last,
        "silence_seconds": None if last is None or until is None else max(0.0, until - last),
        "expected_by": _seconds(more.get("expected_by")),
    }


def _seconds(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()


def _explain_unknown(
    settings: Settings, subject: Subject, published: TopicRows | None, problem: str | None, exporter: str
) -> str:
    text = f"nothing is known of {subject.topic}{'' if subject.partition is None else f':{subject.partition}'}"
    if published is not None and published.alike:
        text += f", did you mean {' or '.join(published.alike)}?"
    if problem is None and published is None:
        problem = (
            f"{settings.history.folder / 'published'} holds no expectations: collect history with "
            "`topic-liveness serve` or `topic-liveness backfill`, then run `topic-liveness rollup`"
        )
    problem = problem or "the last rollup did not know the topic; run `topic-liveness rollup` once history holds it"
    return f"{text}\n  exporter: {exporter}\n  published: {problem}"
