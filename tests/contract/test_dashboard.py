"""The Grafana dashboards: what the builder makes, and what Grafana's dashboard linter says of it."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dashboards.board import MAY_BE_MISSING
from dashboards.build import FOLDER, build
from dashboards.publish import RULES, publish, runbook_link
from tests.contract.promql import named
from tests.grafana import ANNOTATIONS, DASHBOARDS, PANELS, TARGETS
from tests.programs import program

EVERY = pytest.mark.parametrize("name", DASHBOARDS)
VARIABLE = re.compile(r"\$(\w+)")
CHOSEN = {"type": "prometheus", "uid": "${datasource}"}


def variables(name: str) -> dict[str, dict[str, Any]]:
    return {variable["name"]: variable for variable in DASHBOARDS[name]["templating"]["list"]}


def test_the_committed_dashboards_are_what_the_builder_makes() -> None:
    committed = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.json")}
    assert committed == build(), "fix: .venv/bin/python -m dashboards.build"


@EVERY
def test_the_dashboard_linter_of_grafana_finds_nothing(name: str) -> None:
    assert not list(FOLDER.glob(".lint"))
    command = [program("dashboard-linter"), "lint", "--strict", str(FOLDER / f"{name}.json")]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


@EVERY
def test_a_board_asks_the_chosen_source_by_variables_of_its_own_and_leads_to_all_others(name: str) -> None:
    """A variable of another board would be asked for as it is written, and match nothing."""
    board, found = DASHBOARDS[name], variables(name)
    panels = [panel for dashboard, panel in PANELS if dashboard == name]
    asking = [*panels, *(target for panel in panels for target in panel["targets"])]
    asking += [each for each in found.values() if each["type"] == "query"] + board["annotations"].get("list", [])
    assert (found["datasource"]["type"], found["datasource"]["query"]) == ("datasource", "prometheus")
    assert all(each["datasource"] == CHOSEN for each in asking)
    assert list(found)[:4] == ["datasource", "job", "namespace", "instance"]
    for variable in (each for each in found.values() if each["type"] == "query"):
        assert variable["multi"] and variable["includeAll"] and variable["refresh"] == 2 and variable["label"]
        assert variable["allValue"] == (".*" if variable["name"] in MAY_BE_MISSING else ".+")
    used = {word for query in TARGETS + ANNOTATIONS if query.dashboard == name for word in VARIABLE.findall(query.expr)}
    used |= {word for each in found.values() for word in VARIABLE.findall(str(each.get("query", "")))}
    assert used - {"__rate_interval"} <= set(found)
    [of_set] = board["links"]
    assert (of_set["type"], of_set["tags"]) == ("dashboards", ["topic-liveness"])
    assert of_set["includeVars"] and of_set["keepTime"]
    assert "topic-liveness" in board["tags"] and board["uid"] == f"topic-liveness-{name}"


def test_published_copies_link_to_the_runbook(tmp_path: Path) -> None:
    url = "https://wiki.example.org/runbook"
    written = publish(url, tmp_path)
    assert len(written) == len(DASHBOARDS) + len(RULES)
    for name, board in DASHBOARDS.items():
        copy = json.loads((tmp_path / "grafana" / f"{name}.json").read_text(encoding="utf-8"))
        assert copy == {**board, "links": [runbook_link(url), *board["links"]]}
    alerts = (FOLDER.parent / "alerts.yaml").read_text(encoding="utf-8")
    assert (tmp_path / "alerts.yaml").read_text(encoding="utf-8") == alerts.replace("runbook.md#", f"{url}#")


def test_queries_keep_to_the_chosen_exporters_and_tell_clusters_of_one_name_apart() -> None:
    of_one = {"instance", "kafka_cluster", "source_cluster", "target_cluster", "topic", "partition", "consumergroup"}
    for query in TARGETS + ANNOTATIONS:
        assert all({"job", "namespace", "instance"} <= matched for _, matched in named(query.expr).selectors), query
        assert set(re.findall(r"\[([^\]]*)\]", query.expr)) <= {"$__rate_interval"}, query
        for labels in re.findall(r"\b(?:by|on) \(([^)]*)\)", query.expr):
            assert labels.startswith("cluster, namespace, job") or not of_one & set(labels.split(", ")), query


def test_tables_name_the_columns_of_their_queries() -> None:
    """Grafana calls the values of the only query `Value`, and those of several `Value #A`, `Value #B` and so on."""
    tables = [panel for _, panel in PANELS if panel["type"] == "table"]
    assert tables
    for panel in tables:
        references = [target["refId"] for target in panel["targets"]]
        columns = {"Value"} if len(references) == 1 else {f"Value #{reference}" for reference in references}
        [options] = [each["options"] for each in panel["transformations"] if each["id"] == "organize"]
        taken = {name for name in options["renameByName"] | options["excludeByName"] if name.startswith("Value")}
        assert taken == columns, panel["title"]
