"""The Grafana dashboard: what the builder makes, and the rules of Grafana's own dashboard linter."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from dashboards.build import TARGET, build
from tests.contract.promql import named

DASHBOARD: dict[str, Any] = json.loads(TARGET.read_text(encoding="utf-8"))
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
VARIABLES = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}


TARGETS = [(panel["title"], target["expr"]) for panel in PANELS for target in panel["targets"]]


def test_the_committed_dashboard_is_what_the_builder_makes() -> None:
    """``python -m dashboards.build`` would change nothing."""
    assert TARGET.read_text(encoding="utf-8") == build(), "mend: .venv/bin/python -m dashboards.build"


def test_the_data_source_is_chosen_by_a_variable() -> None:
    """Every panel, query and variable asks the data source that the reader chose."""
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    assert VARIABLES["datasource"]["type"] == "datasource" and VARIABLES["datasource"]["query"] == "prometheus"
    assert all(panel["datasource"] == chosen for panel in PANELS)
    assert all(target["datasource"] == chosen for panel in PANELS for target in panel["targets"])
    assert all(variable["datasource"] == chosen for name, variable in VARIABLES.items() if name != "datasource")


def test_variables_narrow_one_another() -> None:
    """job, instance, kafka_cluster and topic take several values, all by default, asked anew with the time range."""
    assert list(VARIABLES) == ["datasource", "job", "instance", "kafka_cluster", "topic"]
    for name in ("job", "instance", "kafka_cluster", "topic"):
        variable = VARIABLES[name]
        assert variable["multi"] and variable["includeAll"] and variable["allValue"] == ".+"
        assert variable["refresh"] == 2 and variable["label"]


@pytest.mark.parametrize(("title", "query"), TARGETS)
def test_every_selector_matches_job_and_instance(title: str, query: str) -> None:
    """No query leaves the exporters that the reader chose."""
    assert all({"job", "instance"} <= matched for _, matched in named(query).selectors), title


@pytest.mark.parametrize(("title", "query"), TARGETS)
def test_rates_follow_the_resolution_of_the_graph(title: str, query: str) -> None:
    """Every range is $__rate_interval."""
    assert set(re.findall(r"\[([^\]]*)\]", query)) <= {"$__rate_interval"}, title


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_panels_are_explained_and_carry_a_unit(panel: dict[str, Any]) -> None:
    """Title, description and unit are there."""
    assert panel["title"] and panel["description"].endswith(".")
    units = [panel["fieldConfig"]["defaults"].get("unit")]
    units += [
        prop["value"]
        for override in panel["fieldConfig"]["overrides"]
        for prop in override["properties"]
        if prop["id"] == "unit"
    ]
    assert any(units)


def test_titles_are_unique() -> None:
    """No two panels are called the same."""
    titles = [panel["title"] for panel in PANELS if panel["type"] != "stat"]
    assert len(set(titles)) == len(titles)


def test_panels_do_not_overlap() -> None:
    """Every cell of the grid belongs to one panel, within 24 columns."""
    cells = [
        (x, y)
        for panel in DASHBOARD["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


def test_figures_are_unknown_where_nothing_is_known() -> None:
    """A stopped exporter must not show zero dead topics: no figure falls back to a constant."""
    assert not [title for title, query in TARGETS if "vector(" in query]
