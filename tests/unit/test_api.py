"""The API over real sockets: every answer against its OpenAPI document, filters, paging and bad input."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from starlette.routing import Route

from exporter.domain.groups.sweep import GroupSweep
from exporter.domain.polls.readings import Reason
from exporter.web.api import document, routes
from exporter.web.server import WebServer
from tests.monitors import served
from tests.plain_http import NO_TLS, get
from tests.unit.test_state import SWEEP, scene

schema = schemathesis.openapi.from_dict(dict(document()))
OPERATIONS = {operation.label: operation for path in schema for operation in schema[path].values()}
"""By method and path. Schemathesis itself gives tests of all of them the same name, of which xdist runs one."""


@pytest.fixture(scope="module")
def server() -> Iterator[WebServer]:
    monitor, poller, _, clock = scene()
    poller.poll()
    clock.time += 30
    poller.poll()
    monitor.take_sweep(SWEEP)
    with served(monitor) as running:
        yield running


@pytest.fixture
def client(server: WebServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://{server.address}/api/v1/", timeout=20, verify=NO_TLS) as made:
        yield made


def items(client: httpx.Client, path: str, **given: Any) -> list[dict[str, Any]]:
    answer = client.get(path, params=given)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["items"]
    return found


@pytest.mark.parametrize("operation", OPERATIONS, ids=OPERATIONS)
def test_every_answer_is_as_the_document_says(operation: str, server: WebServer) -> None:
    @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
    @given(OPERATIONS[operation].as_strategy())
    def ask(case: Any) -> None:
        case.call_and_validate(base_url=f"http://{server.address}")

    ask()


BROKEN: Any = object()
"""Pages that cannot be made."""


def test_the_document_has_every_path() -> None:
    async def never(_: object) -> None:
        raise NotImplementedError

    paths = [route.path for route in routes(BROKEN, never) if isinstance(route, Route)]
    assert paths == list(document()["paths"])


def test_filters_narrow_and_pages_hold_all(client: httpx.Client) -> None:
    assert [one["partition"] for one in items(client, "partitions", verdict="dead")] == [1]
    assert {one["topic"] for one in items(client, "partitions", state="unreadable")} == {"lost"}
    assert {one["topic"] for one in items(client, "topics", state=["empty", "future"])} == {"cleared", "ahead"}
    assert [one["topic"] for one in items(client, "topics", search="ORD")] == ["orders"]
    assert [one["topic"] for one in items(client, "topics", topic=["new", "lost"], sort="-name")] == ["new", "lost"]
    assert items(client, "topics", cluster="other") == []
    answer = client.get("topics", params={"cluster": ["prod", "prdo"]}).json()
    assert answer["not_read"] == {"prdo": "no cluster of this name is configured"}
    assert {item["cluster"] for item in answer["items"]} == {"prod"}
    whole = items(client, "partitions", sort="name")
    assert [
        one for start in range(0, 6, 2) for one in items(client, "partitions", sort="name", offset=start, limit=2)
    ] == whole
    assert client.get("partitions", params={"limit": 1}).json()["total"] == len(whole) == 6


def test_what_is_not_known_is_null(client: httpx.Client) -> None:
    [lost] = items(client, "partitions", topic="lost")
    assert lost["reason"] == "leader-unreachable"
    assert {lost[name] for name in ("latest", "last_record", "silence_seconds")} == {None}


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("topics?verdict=deaf", 400, "verdict must be one of live, quiet, late, suspect, dead"),
        ("topics?limit=1001", 400, "limit must be a whole number from 1 to 1000, got '1001'"),
        ("topics?sort=colour", 400, "sort must be one of severity, name, silence, score, last_record"),
        ("topics?verdikt=dead", 400, "unknown parameter 'verdikt'; there are cluster, topic, verdict"),
        ("explain/prod/orders?partition=1", 400, "unknown parameter 'partition'"),
        ("topics?search=a&search=b", 400, "search must be given once"),
        ("clusters?cluster=prod", 400, "unknown parameter 'cluster'"),
        ("explain/prod/<script>", 404, "cluster prod has no topic of that name in view"),
        ("explain/prod/orders/99", 404, "the topic has no such partition: its partitions are 0 to 1"),
        (f"explain/prod/orders/{'9' * 5000}", 404, "the topic has no such partition: its partitions are 0 to 1"),
        ("explain/none/orders", 404, "no cluster 'none' is read now"),
        ("..%2f..%2fetc%2fpasswd", 404, "no such path"),
    ],
)
def test_bad_questions_are_answered_with_the_rule(client: httpx.Client, path: str, status: int, message: str) -> None:
    answer = client.get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/json")
    assert message in answer.json()["error"]


def test_a_cluster_that_is_not_read_has_no_items_and_says_so() -> None:
    """What was known of it is too old to be shown; the answer names it with the reason."""
    monitor, poller, _, clock = scene()
    poller.poll()
    clock.time += 3600
    with served(monitor) as running:
        answer = get(f"http://{running.address}/api/v1/topics", timeout=20).json()
    assert (answer["total"], answer["items"]) == (0, [])
    assert answer["not_read"]["prod"].startswith("down: no poll has ended for too long")


def test_consumer_groups_that_could_not_be_read_are_not_none() -> None:
    monitor, poller, _, _ = scene()
    poller.poll()

    def asked(url: str) -> tuple[list[str], Mapping[str, str], list[str] | None]:
        listed = get(f"{url}/groups", timeout=20)
        schema["/api/v1/groups"]["GET"].validate_response(listed)
        names = [one["group"] for one in listed.json()["items"]]
        one = get(f"{url}/explain/prod/orders", timeout=20).json()["groups"]
        return names, listed.json()["not_read"], None if one is None else [each["group"] for each in one]

    with served(monitor) as running:
        url = f"http://{running.address}/api/v1"
        assert asked(url) == ([], {"prod": "its consumer groups are not read, or were not lately"}, None)
        refused = GroupSweep(cluster="prod", problem="not allowed", reason=Reason.UNAUTHORIZED)
        why = {"prod": "its consumer groups could not be read: unauthorized: not allowed"}
        monitor.take_sweep(refused)
        assert asked(url) == ([], why, None)
        of_another = get(f"{url}/groups?cluster=test", timeout=20).json()
        assert of_another["not_read"] == {"test": "no cluster of this name is configured"}
        monitor.take_sweep(replace(refused, positions=SWEEP.positions))
        assert asked(url) == (["billing"], why, ["billing"])
        monitor.take_sweep(SWEEP)
        assert asked(url) == (["billing"], {}, ["billing"])
