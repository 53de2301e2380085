"""``topic-liveness doctor`` on real brokers: what a user reads where all is well, and where something is missing."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.admin import AclOperation, ResourceType

from exporter.cli import run
from exporter.domain.ports import SourceError
from exporter.kafka.client import Client
from tests.integration.secured import SECRET, WRONG, Properties, Secured, documented_group_rights, documented_rights
from tests.integration.sweeping import commit
from tests.waiting import until
from tests.workbench import Workbench


class Doctor:
    """The command on one cluster named ``test``, with a history folder and a port of its own."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._folder = folder
        self._capsys = capsys

    def examine(
        self, properties: Properties, *include: str, style: str = "json", timeout: str = "20s"
    ) -> tuple[int, str]:
        cluster = {
            "name": "test",
            "kafka": {name: {"file": str(v)} if isinstance(v, Path) else v for name, v in properties.items()},
            "topics": {"include": list(include)},
        }
        tree = {
            "clusters": [cluster],
            "history": {"folder": str(self._folder / "history")},
            "web": {"listen": "127.0.0.1:0"},
            "poll": {"request_timeout": timeout},
        }
        path = self._folder / "test.yaml"
        path.write_text(yaml.safe_dump(tree))
        code = run(["doctor", "--config", str(path), "--format", style])
        printed = self._capsys.readouterr()
        assert printed.err == ""
        return code, printed.out

    def findings(self, properties: Properties, *include: str) -> list[dict[str, Any]]:
        found = json.loads(self.examine(properties, *include)[1])
        return [each for each in found if each["cluster"] == "test"]


@pytest.fixture
def doctor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Doctor:
    return Doctor(tmp_path, capsys)


def findings_of(findings: list[dict[str, Any]], check: str) -> list[tuple[str, str]]:
    return [(each["severity"], each["what"]) for each in findings if each["check"] == check]


def test_where_all_is_well_it_says_so_and_ends_with_0(workbench: Workbench, doctor: Doctor, tmp_path: Path) -> None:
    workbench.create("healthy")
    code, text = doctor.examine({"bootstrap.servers": workbench.bootstrap}, "healthy", style="text")
    assert code == 0, text
    assert "\x1b" not in text
    for line in (
        "ok       configuration   valid, with 1 cluster: test\n",
        "ok       web port        127.0.0.1:0 is free\n",
        "ok       secrets         no secret is short, and no file with one is readable by every user of this host\n",
        f"ok       listeners       1 of 1 broker reached at the address advertised: {workbench.bootstrap}\n",
        "ok       poll            1 partition read in ",
        " visible, 1 topic selected by topics.include and topics.exclude; topics without the right are not listed\n",
        " read in ",
        "ok       groups          ",
    ):
        assert line in text, text
    assert not (tmp_path / "history").exists()


def test_what_costs_data_is_reported_with_its_price_and_its_mending(workbench: Workbench, doctor: Doctor) -> None:
    """A pattern for nothing, beside an address of nobody in bootstrap.servers: exit code 1."""
    workbench.create("selected")
    properties: Properties = {"bootstrap.servers": f"127.0.0.1:1,{workbench.bootstrap}"}
    code, text = doctor.examine(properties, "selected", "yesterday.*", timeout="5s")
    assert code == 1
    found = json.loads(text)
    unmatched = "topics.include 'yesterday.*' matches no visible topic: check the spelling, and the DESCRIBE right"
    assert ("warning", unmatched) in findings_of(found, "rights")
    assert [severity for severity, _ in findings_of(found, "listeners")] == ["ok"]
    assert all(each["costs"] and each["fix"] for each in found if each["severity"] in ("warning", "error"))


def visible_topics(properties: Properties) -> int:
    """Return how many topics a user may describe; none while the broker does not know the user yet."""
    with closing(Client(properties, request_timeout=30)) as client:
        try:
            return client.count_topics()
        except SourceError:
            return 0


def test_rights_that_are_missing_are_named_with_the_command_that_grants_them(secured: Secured, doctor: Doctor) -> None:
    for topic in ("doctored", "hidden"):
        secured.bench.create(topic)
    secured.add_user("patient")
    secured.grant("patient", [(AclOperation.DESCRIBE, "doctored")])
    properties = secured.by_password(user="patient")
    until(lambda: visible_topics(properties) == 1)
    found = doctor.findings(properties, "doctored", "hidden")
    counts = "1 topic visible, 1 topic selected by topics.include and topics.exclude"
    assert findings_of(found, "rights") == [
        ("warning", "settings of topics could not be read; offsets are read: unauthorized 1 (doctored)"),
        ("ok", f"Describe: {counts}; topics without the right are not listed"),
        ("error", "Describe is missing on 1 topic that topics.include names: hidden"),
    ]
    assert findings_of(found, "poll") == [("warning", "unreadable: unauthorized 1 (hidden)")]
    for finding in found:
        if "unauthorized" in finding["what"] or "is missing on" in finding["what"]:
            assert "--operation Describe --operation DescribeConfigs --topic '*' (docs/security.md)" in finding["fix"]


def test_the_documented_rights_are_all_that_it_needs(secured: Secured, doctor: Doctor) -> None:
    secured.add_user("entitled")
    secured.grant("entitled", documented_rights())
    properties = secured.by_password(user="entitled")
    until(lambda: visible_topics(properties) > 0)
    # Without a group there is no coordinator to ask about the right on groups.
    commit(secured.bench.bootstrap, "doctored", {"orders": 0})
    found = doctor.findings(properties, "orders")
    assert [severity for severity, _ in findings_of(found, "rights")] == ["ok"]
    assert [severity for severity, _ in findings_of(found, "poll")] == ["ok"]
    assert [severity for severity, _ in findings_of(found, "groups")] == ["ok", "note"], (
        "the right on groups is another"
    )
    fix = next(each["fix"] for each in found if each["what"].startswith("consumer groups may be hidden"))
    assert "--operation Describe --group '*' (docs/security.md)" in fix
    secured.grant("entitled", documented_group_rights(), ResourceType.GROUP)
    until(lambda: len(findings_of(doctor.findings(properties, "orders"), "groups")) == 1)


def test_a_refused_password_is_reported_once_and_not_shown(secured: Secured, doctor: Doctor, tmp_path: Path) -> None:
    """In the exporter's words; no address is tried again with it, and a file that all may read is warned of."""
    secret = tmp_path / "password"
    secret.write_text(WRONG)
    secret.chmod(0o644)
    code, text = doctor.examine({**secured.by_password(), "sasl.password": secret}, ".*")
    assert code == 1
    found = [each for each in json.loads(text) if each["cluster"] == "test"]
    [warned, refused] = found
    assert (warned["severity"], warned["check"]) == ("warning", "secrets")
    assert f"sasl.password: {secret} can be read by every user of this host (mode 0644)" in warned["what"]
    assert (refused["severity"], refused["check"]) == ("error", "connection")
    assert "could not sign in to " in refused["what"]
    assert refused["fix"].startswith("check security.protocol and sasl.* of this cluster")
    assert WRONG not in text and SECRET not in text
