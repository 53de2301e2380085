"""The pages for people, made from the templates beside this file, from what the API has too."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from exporter.domain.formatting import ago, duration, moment, plural
from exporter.domain.judging.current_facts import ClusterFacts, explain_subject
from exporter.domain.judging.queries import GRAVEST, Query, partitions, topics
from exporter.domain.learning.traffic_clock import HOUR, HOURS
from exporter.domain.polls.readings import State
from exporter.domain.verdicts import BY_SCORE, Verdict
from exporter.web.api import FILTERS, RunInWorker, check, name_unread_clusters, query_of
from exporter.web.status import Pages, Status, expectations

if TYPE_CHECKING:
    from jinja2 import Environment

SHOWN = 50
"""Rows of a list on a page."""

_SHOWN_PARTITIONS = 100
_MONDAY = 4 * 86_400.0
"""The first Monday of Unix time."""

_SORTS = (
    ("severity", "gravest first"),
    ("name", "name"),
    ("-silence", "longest silence"),
    ("-score", "highest score"),
    ("last_record", "oldest record"),
)
_ALARMING = (Verdict.DEAD, Verdict.SUSPECT)


_OF_PAGES = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
_OF_REPORT = {
    **_OF_PAGES,
    # It holds all that it needs, and has no business with the pages beside it.
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "img-src data:; sandbox allow-scripts allow-downloads allow-popups",
}


_REPORT_PAGE = "liveness.html"
_FORMS = {"html": "text/html", "json": "application/json", "md": "text/markdown"}
_HEADINGS = {400: "This cannot be asked", 404: "No such topic", 503: "Not known now"}
_NOT_IN_VIEW = "It is not in view now: deleted, or left out by the settings"
_NO_REPORT = "No report is in the history folder yet. Run `topic-liveness report`, once a week by cron or the chart."


def routes(source: Pages, run_in_worker: RunInWorker, report: Callable[[str], bytes | None]) -> list[BaseRoute]:
    """Return the routes of the pages; ``run_in_worker`` makes them. ``report`` returns a file of the last report."""

    def page(make: Callable[[Request], str]) -> Callable[[Request], Awaitable[Response]]:
        async def serve(request: Request) -> Response:
            try:
                return HTMLResponse(await run_in_worker(lambda: make(request)), headers=_OF_PAGES)
            except HTTPException as error:
                if error.status_code not in _HEADINGS:
                    raise
                code, text = error.status_code, f"{error.detail}."
            root = "../../" if request.path_params else ""
            body = await run_in_worker(lambda: render_missing(source.status(), _HEADINGS[code], text, root))
            return HTMLResponse(body, code, headers=_OF_PAGES)

        return serve

    def first(request: Request) -> str:
        check(request.query_params, ())
        return overview(source.status(), source.cluster_facts())

    def topics_page(request: Request) -> str:
        # A form sends what was left empty, too.
        given = QueryParams([(name, value) for name, value in request.query_params.multi_items() if value])
        check(given, FILTERS)
        return topic_list(source.status(), source.cluster_facts(), given)

    def topic_page(request: Request) -> str:
        check(request.query_params, ())
        status = source.status()
        found = topic(status, source.cluster_facts(), **request.path_params)
        if found is None:
            away = [one for one in status.clusters if one.name == request.path_params["cluster"] and not one.up]
            text = f"Cluster {away[0].name} is not read: {away[0].condition}" if away else _NOT_IN_VIEW
            raise HTTPException(503 if away else 404, text)
        return found

    async def last_report(_: Request) -> Response:
        return RedirectResponse(f"report/{_REPORT_PAGE}", 302, headers=_OF_PAGES)

    async def file_of_report(request: Request) -> Response:
        name = request.path_params["name"]
        found = await run_in_worker(lambda: report(name))
        if found is not None:
            return Response(found, media_type=_FORMS[name.rpartition(".")[2]], headers=_OF_REPORT)
        heading, text = "No such file", "The last report has no file of this name."
        if name == _REPORT_PAGE:
            heading, text = "No report yet", _NO_REPORT
        body = await run_in_worker(
            lambda: render_missing(source.status(), heading, text, "../" * (1 + name.count("/")))
        )
        return HTMLResponse(body, 404, headers=_OF_PAGES)

    return [
        Route("/", page(first)),
        Route("/topics", page(topics_page)),
        Route("/topics/{cluster}/{name}", page(topic_page)),
        Route("/report", last_report),
        Route("/report/{name:path}", file_of_report),
        Mount("/static", StaticFiles(packages=[("exporter.web", "static")])),
    ]


def overview(status: Status, known: Sequence[ClusterFacts]) -> str:
    """Return the first page: what is dead or suspect, incidents, and all clusters."""
    alarming = topics(known, Query(verdicts=_ALARMING, limit=SHOWN))
    unread = name_unread_clusters(status, known, Query())
    read = [cluster for cluster in status.clusters if cluster.name not in unread]
    incidents = [(one.cluster, str(each)) for one in known for each in one.assessment.incidents]
    held = sum(one.assessment.held_topics for one in known) if incidents else 0
    counted = sum((Counter(cluster.topic_verdicts) for cluster in read), Counter[str]())
    return _render(
        "overview.html",
        status,
        headline=_headline(status, len(read), alarming.total, held, len(incidents)),
        alarming=asdict(alarming),
        partly=asdict(partitions(known, Query(verdicts=_ALARMING, limit=SHOWN, of_living=True))),
        unreadable=sum(cluster.states.get(State.UNREADABLE, 0) for cluster in read),
        verdicts=[(str(verdict), counted[verdict]) for verdict in GRAVEST if verdict in counted],
        incidents=incidents,
        expectations=expectations(status),
    )


def _headline(status: Status, read: int, alarming: int, held: int, incidents: int) -> str:
    """Return what is dead, suspect or held, or why that is not known; ``read`` counts the clusters that are read."""
    if not read:
        return "No cluster is read now"
    if alarming:
        text = f"{plural(alarming, 'topic')} {'needs' if alarming == 1 else 'need'} a look"
        text += f", {held:,} {'is' if held == 1 else 'are'} held" if incidents else ""
    elif incidents:
        text = f"{plural(held, 'topic')} {'is' if held == 1 else 'are'} held"
    elif status.expectations_in_force:
        text = "No topic is dead or suspect"
    else:
        text = "Verdicts are not known"
    text += f": {plural(incidents, 'incident')}" if incidents else ""
    unread = len(status.clusters) - read
    return text + (f"; {plural(unread, 'cluster')} {'is' if unread == 1 else 'are'} not read" if unread else "")


def topic_list(status: Status, known: Sequence[ClusterFacts], given: QueryParams) -> str:
    """Return one page of the list of topics, as the parameters say. Raises HTTPException 400."""
    query = replace(query_of(given), limit=SHOWN)
    filters = [(name, value) for name, value in given.multi_items() if name != "offset"]

    def link(offset: int) -> str:
        return f"topics?{urlencode([*filters, ('offset', offset)])}"

    page = topics(known, query)
    end = query.offset + len(page.items)
    owners = {info.owner for one in known for info in one.snapshot.metadata.topics.values() if info.owner is not None}
    return _render(
        "topics.html",
        status,
        search=query.search,
        query=query,
        page=asdict(page),
        names=[cluster.name for cluster in status.clusters],
        all_verdicts=[str(verdict) for verdict in GRAVEST],
        all_states=[str(state) for state in State],
        filtered=any(name != "sort" for name, _ in filters),
        owner=next(iter(query.owners), ""),
        owners=sorted(owners)[:500],
        sorts=_SORTS,
        sort=given.get("sort", "severity"),
        not_read=name_unread_clusters(status, known, query),
        before=link(max(0, query.offset - SHOWN)) if query.offset else None,
        after=link(end) if end < page.total and page.items else None,
    )


def topic(status: Status, known: Sequence[ClusterFacts], cluster: str, name: str) -> str | None:
    """Return the page of one topic, None where it is not in view."""
    one = next((one for one in known if one.cluster == cluster), None)
    subject = None if one is None else explain_subject(one, name, None)
    if one is None or subject is None:
        return None
    query = Query(topics=[name], limit=_SHOWN_PARTITIONS)
    return _render(
        "topic.html",
        status,
        root="../../",
        subject=subject,
        by_score=BY_SCORE,
        bar=_bar(subject),
        week=_week(subject, status.now),
        partitions=asdict(partitions([one], query)),
    )


def render_missing(status: Status, heading: str, text: str, root: str = "") -> str:
    """Return the page for something that does not exist."""
    return _render("missing.html", status, root=root, heading=heading, text=text)


def _render(template: str, status: Status, root: str = "", search: str = "", **given: Any) -> str:
    made: str = _templates().get_template(template).render(status=status, root=root, search=search, **given)
    return made


@cache
def _templates() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - 2 MiB that a scrape does not need

    made = Environment(
        loader=PackageLoader("exporter.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(
        moment=moment,
        duration=duration,
        count=lambda number: f"{number:,}",
        age=ago,
        ago=lambda at, now: "" if at is None else f"{moment(at)} ({ago(now - at)})",
    )
    return made


def _bar(subject: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return how far a silence is towards the moment from which it is dead, None where that is unknown."""
    silent, by, last = subject["silence_seconds"], subject["expected_by"], subject["last_advance"]
    if silent is None or by is None or last is None or by <= last:
        return None
    limit = by - last
    whole = max(silent, limit)
    text = f"Silent {duration(silent)}; dead past {duration(limit)}, on {moment(by)}."
    return {"silent": round(1000 * silent / whole), "limit": round(1000 * limit / whole), "text": text}


def _week(subject: Mapping[str, Any], now: float) -> Mapping[str, Any] | None:
    """Return how often each of the 168 hours of the week is active; None where that is not known.

    Of the hours until ``this``, ``silent`` are of the present silence.
    """
    row = subject["expectation"]
    if row is None or row["profile"] is None or len(row["profile"]) != HOURS:
        return None
    most, last = HOUR / row["slot_seconds"], subject["last_advance"]
    this = math.floor((now - _MONDAY) / HOUR)
    silent = 0 if last is None else min(HOURS, max(0, this - math.floor((last - _MONDAY) / HOUR)))
    return {"shares": [min(1.0, slots / most) for slots in row["profile"]], "this": this, "silent": silent}
