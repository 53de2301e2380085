"""The API: what the exporter knows now as JSON, as ``openapi.yaml`` beside this file describes it."""

import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from typing import Any

import yaml
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from exporter.domain.groups.readers import groups_of
from exporter.domain.judging.current_facts import ClusterFacts, explain_subject
from exporter.domain.judging.queries import SORTS, Page, Query, partitions, topics
from exporter.domain.polls.readings import Reason, State
from exporter.domain.verdicts import Verdict
from exporter.web.status import ClusterStatus, Pages, Status

MAX_LIMIT = 1000
"""Items of one page."""

PREFIX = "/api/v1"
_OF_CLUSTER = (
    *("cluster_id", "up", "condition", "last_poll", "poll_seconds", "topics", "partitions"),
    *("last_record", "last_advance", "states", "verdicts", "topic_verdicts"),
)
"""What is told of a cluster besides its name."""

_PARTITION = re.compile("[0-9]{1,9}")

FILTERS = ("cluster", "topic", "verdict", "state", "owner", "search", "sort", "limit", "offset")
"""The parameters of lists of topics and partitions."""
_OF_GROUPS = ("cluster", "topic", "search", "limit", "offset")
_OF_INCIDENTS = ("cluster", "limit", "offset")

Find = Callable[[Sequence[ClusterFacts], Query], Page]
Lacking = Callable[[Sequence[ClusterFacts]], Mapping[str, str]]

RunInWorker = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs a function in a worker thread."""


@cache
def document() -> Mapping[str, Any]:
    """Return the OpenAPI document."""
    loaded: Mapping[str, Any] = yaml.safe_load(files("exporter.web").joinpath("openapi.yaml").read_text("utf-8"))
    return loaded


def routes(source: Pages, run_in_worker: RunInWorker) -> list[BaseRoute]:
    """Return the routes of the API; ``run_in_worker`` makes the answers."""

    def wrap(answer: Callable[[Request], Mapping[str, Any]]) -> Callable[[Request], Awaitable[Response]]:
        async def serve(request: Request) -> Response:
            return JSONResponse(await run_in_worker(lambda: answer(request)), headers={"Cache-Control": "no-store"})

        return serve

    def clusters(request: Request) -> Mapping[str, Any]:
        check(request.query_params, ())
        status = source.status()
        return {
            "as_of": status.now,
            "expectations_as_of": status.expectations_as_of,
            "expectations_in_force": status.expectations_in_force,
            "past_alarms": {kind: asdict(alarms) for kind, alarms in status.past_alarms.items()},
            "clusters": [_cluster(cluster) for cluster in status.clusters],
        }

    def list_items(
        request: Request, parameters: Collection[str], find: Find, lacking: Lacking = lambda _: {}
    ) -> dict[str, Any]:
        """Return a page of items, as of when they are known, and what is not known of which clusters."""
        check(request.query_params, parameters)
        query, status, known = query_of(request.query_params), source.status(), source.cluster_facts()
        chosen = [one for one in known if not query.clusters or one.cluster in query.clusters]
        page = find(chosen, query)
        not_read = {**name_unread_clusters(status, known, query), **lacking(chosen)}
        paging = {"total": page.total, "offset": query.offset, "limit": query.limit}
        return {"as_of": status.now, "not_read": not_read, **paging, "items": page.items}

    def explain(request: Request) -> Mapping[str, Any]:
        check(request.query_params, ())
        cluster, topic = request.path_params["cluster"], request.path_params["topic"]
        number = request.path_params.get("partition")
        partition = int(number) if number is not None and _PARTITION.fullmatch(number) else None
        found = next((one for one in source.cluster_facts() if one.cluster == cluster), None)
        if found is None:
            raise HTTPException(404, f"no cluster {cluster!r} is read now; {PREFIX}/clusters lists them all")
        subject = None
        if number is None or partition is not None:
            subject = explain_subject(found, topic, partition)
        if subject is None or not (subject["partitions"] or subject["reading"]):
            raise HTTPException(404, _not_in_view(found, topic))
        return subject

    def openapi(request: Request) -> Mapping[str, Any]:
        check(request.query_params, ())
        return document()

    return [
        Route(f"{PREFIX}/clusters", wrap(clusters)),
        Route(f"{PREFIX}/topics", wrap(lambda request: list_items(request, FILTERS, topics))),
        Route(f"{PREFIX}/partitions", wrap(lambda request: list_items(request, FILTERS, partitions))),
        Route(f"{PREFIX}/groups", wrap(lambda request: list_items(request, _OF_GROUPS, _groups, _without_groups))),
        Route(f"{PREFIX}/incidents", wrap(lambda request: list_items(request, _OF_INCIDENTS, _incidents))),
        Route(f"{PREFIX}/explain/{{cluster}}/{{topic}}", wrap(explain)),
        Route(f"{PREFIX}/explain/{{cluster}}/{{topic}}/{{partition}}", wrap(explain)),
        Route(f"{PREFIX}/openapi.json", wrap(openapi)),
    ]


def _not_in_view(cluster: ClusterFacts, topic: str) -> str:
    described, layout = cluster.snapshot.metadata.topics.get(topic), cluster.assessment.layout
    if described is None or (described.reason is None and layout.number_of(topic) is None):
        return f"cluster {cluster.cluster} has no topic of that name in view; DESCRIBE on it is needed to see it"
    if described.reason is not None:
        step = "; next step: grant DESCRIBE on it" if described.reason is Reason.UNAUTHORIZED else ""
        return f"the topic could not be described: {described.reason}{step}"
    numbers = layout.partition[layout.rows_of(topic)]
    return f"the topic has no such partition: its partitions are {numbers.min()} to {numbers.max()}"


def name_unread_clusters(status: Status, known: Sequence[ClusterFacts], query: Query) -> Mapping[str, str]:
    """Return the clusters of which nothing is known now although the query may be about them, and why."""
    read = {one.cluster for one in known}
    missing = {one.name: one.condition for one in status.clusters if one.name not in read}
    if not query.clusters:
        return missing
    no_cluster = "no cluster of this name is configured"
    return {name: missing.get(name, no_cluster) for name in query.clusters if name not in read}


def _groups(known: Sequence[ClusterFacts], query: Query) -> Page:
    found = [
        {"cluster": one.cluster, **group}
        for one in known
        if one.sweep is not None
        for group in groups_of(one.sweep)
        if query.search.lower() in group["group"].lower()
        and (not query.topics or not set(query.topics).isdisjoint(group["topics"]))
    ]
    return Page(len(found), found[query.offset : query.offset + query.limit])


def _without_groups(known: Sequence[ClusterFacts]) -> Mapping[str, str]:
    """Return the clusters whose consumer groups were not read lately, or could not be, and why."""
    found = {}
    for one in known:
        if one.sweep is None:
            found[one.cluster] = "its consumer groups are not read, or were not lately"
        elif one.sweep.reason is not None:
            found[one.cluster] = f"its consumer groups could not be read: {one.sweep.reason}: {one.sweep.problem}"
    return found


def _incidents(known: Sequence[ClusterFacts], query: Query) -> Page:
    found = [
        {
            "cluster": one.cluster,
            "name": incident.name,
            **asdict(incident),
            "falling": incident.falling and incident.falling._asdict(),
            "evidence": str(incident),
        }
        for one in known
        for incident in one.assessment.incidents
    ]
    return Page(len(found), found[query.offset : query.offset + query.limit])


def _cluster(cluster: ClusterStatus) -> Mapping[str, Any]:
    return {"cluster": cluster.name, **{name: getattr(cluster, name) for name in _OF_CLUSTER}}


def check(given: QueryParams, known: Collection[str]) -> None:
    """Raise HTTPException 400 for a parameter that is not among those known."""
    if unknown := sorted(set(given) - set(known)):
        hint = f"; there are {', '.join(known)}" if known else ""
        raise HTTPException(400, f"unknown parameter {unknown[0]!r}{hint}")


def query_of(given: QueryParams) -> Query:
    """Read filters and paging. Raises HTTPException 400."""
    for once in ("search", "sort", "limit", "offset"):
        if len(given.getlist(once)) > 1:
            raise HTTPException(400, f"{once} must be given once")
    sort = given.get("sort", "severity")
    if sort.removeprefix("-") not in SORTS:
        raise HTTPException(400, f"sort must be one of {', '.join(SORTS)}, with - before it for the other way round")
    return Query(
        clusters=given.getlist("cluster"),
        topics=frozenset(given.getlist("topic")),
        verdicts=_among(given.getlist("verdict"), "verdict", list(Verdict)),
        states=_among(given.getlist("state"), "state", list(State)),
        owners=frozenset(given.getlist("owner")),
        search=given.get("search", ""),
        sort=sort.removeprefix("-"),
        descending=sort.startswith("-"),
        offset=_number(given.get("offset", "0"), "offset", 0, 2**31 - 1),
        limit=_number(given.get("limit", "100"), "limit", 1, MAX_LIMIT),
    )


def _among(given: Sequence[str], name: str, allowed: Sequence[str]) -> Sequence[str]:
    if wrong := [value for value in given if value not in allowed]:
        raise HTTPException(400, f"{name} must be one of {', '.join(allowed)}, got {wrong[0]!r}")
    return given


def _number(given: str, name: str, least: int, most: int) -> int:
    if not (given.isascii() and given.isdecimal() and len(given) <= 10 and least <= int(given) <= most):
        raise HTTPException(400, f"{name} must be a whole number from {least} to {most}, got {given[:40]!r}")
    return int(given)
