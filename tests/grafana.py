"""The committed Grafana dashboards, as tests read them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from dashboards.board import MAY_BE_MISSING

FOLDER = Path(__file__).parents[1] / "dashboards" / "grafana"
DASHBOARDS: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))
}


class Query(NamedTuple):
    """One query of a panel, or of an annotation."""

    dashboard: str
    title: str
    expr: str

    def as_sent(self, **variables: str) -> str:
        """Return it as Grafana sends it; every variable matches all unless it is named here."""
        expr = self.expr.replace("$__rate_interval", "5m")
        for variable in sorted(VARIABLES, key=len, reverse=True):
            expr = expr.replace(f"${variable}", variables.get(variable, ".*" if variable in MAY_BE_MISSING else ".+"))
        return expr


def panels(dashboard: str) -> Iterator[dict[str, Any]]:
    """Every panel but rows, those of collapsed rows too."""
    for panel in DASHBOARDS[dashboard]["panels"]:
        if panel["type"] == "row":
            yield from panel.get("panels") or []
        else:
            yield panel


VARIABLES = {variable["name"] for each in DASHBOARDS.values() for variable in each["templating"]["list"]}
PANELS = [(name, panel) for name in DASHBOARDS for panel in panels(name)]
TARGETS = [Query(name, panel["title"], target["expr"]) for name, panel in PANELS for target in panel["targets"]]
ANNOTATIONS = [
    Query(name, each["name"], each["expr"])
    for name, dashboard in DASHBOARDS.items()
    for each in dashboard["annotations"].get("list") or []
    if "expr" in each
]
