"""Alert and recording rules, run by Prometheus' own promtool."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.programs import program

HERE = Path(__file__).parent
DASHBOARDS = HERE.parents[1] / "dashboards"
RULE_FILES = sorted([DASHBOARDS / "alerts.yaml", DASHBOARDS / "recording.yaml"])
STORIES = sorted(HERE.glob("*.yaml"))


def rules(path: Path) -> Iterator[dict[str, Any]]:
    """Every rule of a rule file."""
    for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]:
        yield from group["rules"]


ALERTS = {rule["alert"]: rule for rule in rules(DASHBOARDS / "alerts.yaml")}


def promtool(*arguments: str | Path) -> None:
    """Run promtool, and fail with what it says."""
    run = subprocess.run([program("promtool"), *arguments], capture_output=True, text=True, cwd=HERE, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("path", RULE_FILES, ids=lambda path: path.stem)
def test_promtool_accepts_the_rules(path: Path) -> None:
    """promtool finds no error and no lint in the rule file."""
    promtool("check", "rules", "--lint=all", "--lint-fatal", path)


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_rules_tell_the_story_as_written(path: Path) -> None:
    """Each rule gives what the story expects at each of its moments."""
    promtool("test", "rules", path)


def moments() -> Iterator[tuple[str, str, bool]]:
    """Every alert that a story looks at: its name, the story's name, whether it must fire then."""
    for path in STORIES:
        for story in yaml.safe_load(path.read_text(encoding="utf-8"))["tests"]:
            for moment in story.get("alert_rule_test", []):
                yield moment["alertname"], story["name"], bool(moment.get("exp_alerts"))


@pytest.mark.parametrize("alert", sorted(ALERTS))
def test_every_alert_is_shown_quiet_before_firing_and_quiet_after(alert: str) -> None:
    """A story holds the alert quiet, then firing, then quiet again."""
    stories: dict[str, list[bool]] = {}
    for name, story, fires in moments():
        if name == alert:
            stories.setdefault(story, []).append(fires)
    shape = re.compile("(q+f+q+)")
    assert any(shape.fullmatch("".join("f" if fires else "q" for fires in seen)) for seen in stories.values())


@pytest.mark.parametrize("alert", sorted(set(ALERTS) - {"ExporterDown"}))
def test_a_stopped_monitor_fires_no_alert_but_its_own(alert: str) -> None:
    """A story in which the exporter stops looks at the alert and finds it quiet."""
    assert any(name == alert and "stopped exporter" in story and not fires for name, story, fires in moments())


@pytest.mark.parametrize("alert", sorted(ALERTS))
def test_every_alert_has_a_heading_in_the_runbook(alert: str) -> None:
    """``runbook_url`` leads to a heading with the alert's name, and what stands there says what to do."""
    anchor = f"runbook.md#{alert.lower()}"
    assert ALERTS[alert]["annotations"]["runbook_url"] == anchor
    sections = (DASHBOARDS / "runbook.md").read_text(encoding="utf-8").split("\n## ")[1:]
    section = next(section for section in sections if section.splitlines()[0] == alert)
    for part in ("Meaning", "Why", "hat to do"):
        assert part in section


def test_the_runbook_speaks_of_no_other_alert() -> None:
    """Each heading of the runbook is an alert."""
    text = (DASHBOARDS / "runbook.md").read_text(encoding="utf-8")
    assert {line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")} == set(ALERTS)


@pytest.mark.parametrize("alert", sorted(ALERTS))
def test_every_alert_says_how_bad_it_is_and_what_happened(alert: str) -> None:
    """Severity, summary and description are there; the summary is one short line."""
    rule = ALERTS[alert]
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert rule["annotations"]["description"].rstrip().endswith((".", "}}"))
    assert "\n" not in rule["annotations"]["summary"]


@pytest.mark.parametrize("path", RULE_FILES, ids=lambda path: path.stem)
def test_no_rule_compares_a_clock_with_expected_by(path: Path) -> None:
    """Death is read from verdicts: a stopped exporter must not turn an old promise into an alarm."""
    assert not [rule for rule in rules(path) if "expected_by" in rule["expr"]]
