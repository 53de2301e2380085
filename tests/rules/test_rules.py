"""Alert and recording rules, run by Prometheus' own promtool."""

import functools
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from exporter.domain.polls.readings import TopicPartition
from exporter.metrics.catalogue import CATALOGUE
from exporter.state.monitor import Monitor
from tests.contract.promql import named
from tests.grafana import ANNOTATIONS, TARGETS
from tests.monitors import monitor_of
from tests.programs import program
from tests.unit.readings import ManualClock
from tests.unit.test_state import SWEEP, scene

HERE = Path(__file__).parent
DASHBOARDS = HERE.parents[1] / "dashboards"
RULE_FILES = sorted([DASHBOARDS / "alerts.yaml", DASHBOARDS / "recording.yaml"])
STORIES = sorted(HERE.glob("*.yaml"))


@functools.cache
def groups(path: Path) -> list[dict[str, Any]]:
    """The groups of a rule file."""
    found: list[dict[str, Any]] = yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]
    return found


def stories(path: Path) -> list[dict[str, Any]]:
    """The stories of a file, each with the file's rules and interval."""
    # All as text: for PyYAML the series 0x60 is a number. Samples alone are numbers.
    content = yaml.load(path.read_text(encoding="utf-8"), yaml.BaseLoader)  # noqa: S506 - makes no objects
    for test in content["tests"]:
        for moment in test.get("promql_expr_test", []):
            for sample in moment.get("exp_samples", []):
                sample["value"] = float(sample["value"])
    return [{**content, "tests": [test]} for test in content["tests"]]


def rules(path: Path) -> Iterator[dict[str, Any]]:
    """Every rule of a rule file."""
    for group in groups(path):
        yield from group["rules"]


RULES = [rule for rule in rules(DASHBOARDS / "alerts.yaml") if "alert" in rule]
RECORDED = {rule["record"]: rule["expr"] for rule in rules(DASHBOARDS / "alerts.yaml") if "record" in rule}
ALERTS = sorted({rule["alert"] for rule in RULES})
VERDICTS = ("kafka_topic_", "kafka_consumergroup_", "kafka_replica_", "held_topics")
"""Beginnings of metrics that say something of topics, groups and replicas, and not of the exporter."""


def reads(rule: dict[str, Any]) -> str:
    """What a rule reads: its expression, and those of the recorded series in it."""
    return " ".join([rule["expr"], *(reads({"expr": expr}) for name, expr in RECORDED.items() if name in rule["expr"])])


def promtool(*arguments: str | Path) -> None:
    """Run promtool of the oldest Prometheus that the rules need, 2.42, and of 3; fail with what one says."""
    for name in ("promtool", "promtool3"):
        run = subprocess.run([program(name), *arguments], capture_output=True, text=True, cwd=HERE, check=False)
        assert run.returncode == 0, f"{name}: {run.stdout}{run.stderr}"


@pytest.mark.parametrize("path", RULE_FILES, ids=lambda path: path.stem)
def test_promtool_accepts_the_rules(path: Path) -> None:
    """promtool finds no error and no lint in the rule file."""
    promtool("check", "rules", "--lint=all", "--lint-fatal", path)


def concerned(path: Path, test: dict[str, Any]) -> list[dict[str, Any]]:
    """The groups of a rule file with those rules that read a series of a story, or that it looks at.

    The others have nothing to read, and to evaluate all of them each minute took most of the time.
    """
    looked_at = {moment["alertname"] for moment in test.get("alert_rule_test", [])}
    read = {re.split("[{ ]", series["series"])[0] for series in test["input_series"]}

    def concerns(rule: dict[str, Any]) -> bool:
        return rule.get("alert") in looked_at or not read.isdisjoint(re.findall(r"[\w:]+", str(rule)))

    while more := {rule["record"] for rule in rules(path) if "record" in rule and concerns(rule)} - read:
        read |= more
    return [{**group, "rules": [rule for rule in group["rules"] if concerns(rule)]} for group in groups(path)]


def tell(story: dict[str, Any], folder: Path) -> None:
    """Let promtool tell one story of the rules that it concerns."""
    [file], [test] = story["rule_files"], story["tests"]
    chosen = concerned((HERE / file).resolve(), test)
    (folder / "rules.yaml").write_text(json.dumps({"groups": chosen}), encoding="utf-8")
    (folder / "story.yaml").write_text(json.dumps({**story, "rule_files": ["rules.yaml"]}), encoding="utf-8")
    promtool("test", "rules", folder / "story.yaml")


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_rules_give_the_story_as_written(path: Path, tmp_path: Path) -> None:
    """Each rule gives what the story expects at each of its moments."""
    for story in stories(path):
        tell(story, tmp_path)


def test_alerts_outlive_lost_scrapes_where_scrapes_are_two_minutes_apart(tmp_path: Path) -> None:
    """The story of lost scrapes has the same alerts at the same moments with half as many samples."""
    for story in stories(HERE / "lost_scrapes.yaml"):
        [test] = story["tests"]
        for series in test["input_series"]:
            halved = re.sub(r"x(\d+)", lambda count: f"x{int(count[1]) // 2}", series["values"])
            series["values"] = re.sub(r"\+(\d+)", lambda step: f"+{2 * int(step[1])}", halved)
        tell({**story, "tests": [{**test, "interval": "2m"}]}, tmp_path)


def moments() -> Iterator[tuple[str, str, bool]]:
    """Every alert that a story looks at: its name, the story's name, whether it must fire then."""
    for path in STORIES:
        for story in stories(path):
            [test] = story["tests"]
            for moment in test.get("alert_rule_test", []):
                yield moment["alertname"], test["name"], bool(moment.get("exp_alerts"))


def test_every_alert_is_shown_quiet_firing_and_quiet_and_quiet_where_the_exporter_stops() -> None:
    """One story has all three in this order; another one, of a stopped exporter, finds each but its own quiet."""
    stories: dict[str, dict[str, list[bool]]] = {alert: {} for alert in ALERTS}
    for name, story, fires in moments():
        stories[name].setdefault(story, []).append(fires)
    for alert, told in stories.items():
        shapes = ["".join("f" if fires else "q" for fires in seen) for seen in told.values()]
        assert any(re.fullmatch("(q+f+q+)", shape) for shape in shapes), alert
        stopped = [seen for story, seen in told.items() if "stopped exporter" in story]
        assert any(False in seen for seen in stopped) or alert == "TopicLivenessExporterDown", alert


def test_every_alert_has_a_heading_in_the_runbook() -> None:
    """``runbook_url`` leads to a heading with the alert's name, and what stands there says what to do."""
    sections = (DASHBOARDS / "runbook.md").read_text(encoding="utf-8").split("\n## ")[1:]
    by_alert = {section.splitlines()[0]: section for section in sections}
    assert set(by_alert) == set(ALERTS), "the runbook speaks of no other alert"
    for rule in RULES:
        assert rule["annotations"]["runbook_url"] == f"runbook.md#{rule['alert'].lower()}"
        assert [part for part in ("Meaning", "Why", "hat to do") if part not in by_alert[rule["alert"]]] == []


def test_alerts_of_topics_and_groups_outlive_a_lost_scrape() -> None:
    """These alerts go on firing for 15 minutes, all in all, and a story shows each of them doing so."""
    kept = [rule for rule in RULES if "keep_firing_for" in rule]
    assert all("last_over_time" in reads(rule) and rule["keep_firing_for"] == "10m" for rule in kept)
    bridged = {rule["alert"] for rule in kept}
    assert bridged == {rule["alert"] for rule in RULES if any(name in reads(rule) for name in VERDICTS)}
    [story] = yaml.safe_load((HERE / "lost_scrapes.yaml").read_text(encoding="utf-8"))["tests"]
    [during] = [moment for moment in story["promql_expr_test"] if moment["eval_time"] == "69m"]
    assert set(re.findall("TopicLiveness[A-Za-z]+", str(during["exp_samples"]))) == bridged


def test_labels_of_the_target_survive_every_aggregation() -> None:
    """cluster, namespace and job are in every list of labels that a rule keeps, and in none that it leaves out."""
    for rule in (rule for path in RULE_FILES for rule in rules(path)):
        for labels in re.findall(r"\b(?:by|on) \(([^)]*)\)", rule["expr"]):
            assert labels.startswith("cluster, namespace, job"), rule["expr"]
        for labels in re.findall(r"\b(?:without|ignoring) \(([^)]*)\)", rule["expr"]):
            assert not {"cluster", "namespace", "job"} & set(labels.split(", ")), rule["expr"]


def test_texts_of_alerts_ask_for_labels_of_the_target() -> None:
    """Every query in a label or an annotation, and what routes and mutes in the example, tells releases apart."""
    texts = [text for rule in RULES for text in (*rule["labels"].values(), *rule["annotations"].values())]
    with_queries = [text for text in texts if "query (printf" in text]
    assert with_queries
    target = "cluster=%q,namespace=%q,job=%q,"
    values = "$labels.cluster $labels.namespace $labels.job "
    assert [text for text in with_queries if f"{{{target}" not in text or f'" {values}' not in text] == []
    example = yaml.safe_load((DASHBOARDS / "alertmanager.yaml").read_text(encoding="utf-8"))
    assert {"cluster", "namespace", "job"} <= set(example["route"]["group_by"])
    assert all({"cluster", "namespace", "job"} <= set(rule["equal"]) for rule in example["inhibit_rules"])


def counters() -> set[str]:
    """Every counter that an alert reads."""
    kinds = {metric.name: metric.type for metric in CATALOGUE}
    return {name for rule in RULES for name in re.findall(r"\w+_total", reads(rule)) if kinds[name] == "counter"}


def exposed_values(monitor: Monitor) -> dict[str, set[float]]:
    """The values of each metric that is exposed."""
    found: dict[str, set[float]] = {}
    for family in text_string_to_metric_families(monitor.metrics().decode()):
        for sample in family.samples:
            found.setdefault(sample.name, set()).add(sample.value)
    return found


def test_counters_of_alerts_are_there_at_0_from_the_start() -> None:
    """An alert on an increase misses what a counter first appears with."""
    first = exposed_values(monitor_of(ManualClock()))
    assert counters()
    assert {name: first.get(name) for name in counters()} == {name: {0.0} for name in counters()}


def test_groups_that_are_not_read_have_no_counter_of_sweeps() -> None:
    """Without groups.enabled no sweep is missing: no alert on sweeps can fire."""
    found = exposed_values(monitor_of(ManualClock(), groups={"enabled": False}))
    assert not {"topic_liveness_group_sweeps_total", "topic_liveness_group_list_failures_total"} & set(found)


def polled(*, partitions: bool) -> Monitor:
    """An exporter that has polled and swept, with series of partitions or, by metrics.granularity, without."""
    monitor, poller, source, clock = scene("partition" if partitions else "topic")
    poller.poll()
    clock.time += 30
    source.offsets[TopicPartition("orders", 0)] = (0, 45, clock.time - 5)
    poller.poll()
    monitor.take_sweep(SWEEP)
    return monitor


def test_what_rules_and_dashboards_read_is_there_without_series_of_partitions() -> None:
    """With metrics.granularity: topic every other metric that they name is exposed as before."""
    read = {name for query in TARGETS + ANNOTATIONS for name, _ in named(query.expr).selectors}
    read |= {name for path in RULE_FILES for rule in rules(path) for name, _ in named(rule["expr"]).selectors}
    whole, coarse = exposed_values(polled(partitions=True)), exposed_values(polled(partitions=False))
    by_partition = {metric.name for metric in CATALOGUE if "partition" in metric.labels}
    assert by_partition & set(whole) and not by_partition & set(coarse)
    needed = read & set(whole) - by_partition
    assert {"kafka_topic_last_advance_timestamp_seconds", "kafka_topic_silence_score"} <= needed
    assert needed <= set(coarse)
