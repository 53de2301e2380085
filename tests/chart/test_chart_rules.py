"""Rules, dashboards and monitors of the chart."""

import json
from pathlib import Path

import pytest
import yaml

from dashboards.publish import runbook_link
from tests.chart.rendering import CHART, CRDS, ROOT, Manifest, alerts, one, ours, pod_of, rendered
from tests.rules.test_rules import promtool


@pytest.mark.parametrize("name", ["alerts", "recording"])
def test_the_chart_carries_the_rules_of_the_dashboards(name: str) -> None:
    """The chart's copy of the rules is the one that promtool tests."""
    source, copy = ROOT / f"dashboards/{name}.yaml", CHART / f"files/{name}.yaml"
    assert copy.read_text() == source.read_text(), f"fix: cp dashboards/{name}.yaml {copy.relative_to(ROOT)}"


def rules_of_the_files() -> list[Manifest]:
    """The groups of the recording and the alert rules."""
    return [
        group
        for name in ("recording", "alerts")
        for group in yaml.safe_load((ROOT / f"dashboards/{name}.yaml").read_text(encoding="utf-8"))["groups"]
    ]


def test_the_operator_gets_all_rules_with_links() -> None:
    """The PrometheusRule holds every group, templates unharmed, and links to the runbook's place."""
    rule = one("operator", "PrometheusRule")
    groups = rules_of_the_files()
    for group in groups:
        for entry in group["rules"]:
            if "annotations" in entry:
                url = entry["annotations"]["runbook_url"]
                entry["annotations"]["runbook_url"] = url.replace(
                    "runbook.md", "https://docs.example.org/topic-liveness/runbook.html"
                )
    assert rule["apiVersion"] == "monitoring.coreos.com/v1"
    *ours, others = rule["spec"]["groups"]
    assert ours == groups and others["name"] == "ours"
    assert rule["metadata"]["labels"]["release"] == "kube-prometheus-stack"


def test_values_change_single_rules(tmp_path: Path) -> None:
    """An alert is left out, another fires later and milder; every one carries the label; promtool accepts them."""
    manifest = one("rules", "PrometheusRule")
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(manifest["spec"]), encoding="utf-8")
    promtool("check", "rules", tmp_path / "rules.yaml")
    rules = alerts("rules")
    assert "TopicLivenessReportLate" not in rules and "TopicLivenessRollupLate" in rules
    held = rules["TopicLivenessTopicsHeld"]
    assert (held["for"], held["labels"]["severity"]) == ("1h", "warning")
    assert {rule["labels"]["source"] for rule in rules.values()} == {"topic-liveness"}
    assert manifest["metadata"]["namespace"] == "monitoring"


@pytest.mark.parametrize(
    ("job", "others"),
    [
        ("rollup", {"TopicLivenessRollupLate", "TopicLivenessExpectationsStale"}),
        ("report", {"TopicLivenessReportLate", "TopicLivenessReportMissing"}),
    ],
)
def test_alerts_on_a_job_that_the_chart_does_not_create_are_left_out(job: str, others: set[str]) -> None:
    """They would fire for ever; ``enabled: true`` keeps one for a job that runs elsewhere."""

    def made(*settings: str) -> set[str]:
        return set(alerts("minimal", "prometheusRule.enabled=true", *settings))

    without = f"{job}.enabled=false"
    [kept, *_] = sorted(others)
    assert others <= made() and made(without) == made() - others
    assert made(without, f"prometheusRule.rules.{kept}.severity=info") == made() - others
    assert made(without, f"prometheusRule.rules.{kept}.enabled=true") == made() - others | {kept}
    assert made(f"prometheusRule.rules.{kept}.enabled=false") == made() - {kept}
    # The rollup may write the report, without a job for it.
    assert "TopicLivenessReportLate" in made("report.enabled=false", "rollup.args={--report}")


@pytest.mark.parametrize("path", sorted((ROOT / "dashboards/grafana").glob("*.json")), ids=lambda path: path.stem)
def test_dashboards_reach_the_sidecar_as_they_are(path: Path) -> None:
    """The chart's copy is the built one; its ConfigMap has the label, the folder and a link to the runbook."""
    copy = CHART / "files/dashboards" / path.name
    assert copy.read_text() == path.read_text(), f"fix: cp {path.relative_to(ROOT)} {copy.relative_to(ROOT)}"
    manifest = one("rules", "ConfigMap", f"-dashboard-{path.stem}")
    assert manifest["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert manifest["metadata"]["annotations"] == {"grafana_folder": "Kafka"}
    dashboard = json.loads(manifest["data"][f"topic-liveness-{path.name}"])
    built = json.loads(path.read_text(encoding="utf-8"))
    built["links"].insert(0, runbook_link("https://docs.example.org/topic-liveness/runbook.html"))
    assert dashboard == built


def test_a_pod_is_scraped_under_the_job_that_rules_know() -> None:
    """The PodMonitor selects the exporter's pod and port, and names job and service before its own relabelings."""
    monitor = one("pod-monitor", "PodMonitor")
    [endpoint] = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["relabelings"][:2] == [
        {"targetLabel": "job", "replacement": "topic-liveness"},
        {"targetLabel": "service", "replacement": one("pod-monitor", "Service")["metadata"]["name"]},
    ]
    deployment = one("pod-monitor", "Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    [container] = ours(pod_of(deployment))
    assert endpoint["port"] == container["ports"][0]["name"]


def test_the_operator_scrapes_the_service_under_the_job_that_rules_know() -> None:
    """The ServiceMonitor selects the Service by labels and port, and names the job topic-liveness."""
    monitor = one("operator", "ServiceMonitor")
    service = one("operator", "Service")
    [endpoint] = monitor["spec"]["endpoints"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert endpoint["port"] == service["spec"]["ports"][0]["name"]
    assert endpoint["relabelings"] == [{"targetLabel": "job", "replacement": "topic-liveness"}]
    assert (endpoint["path"], endpoint["interval"]) == ("/metrics", "15s")
    limits = {name: monitor["spec"][name] for name in ("sampleLimit", "labelValueLengthLimit")}
    assert limits == {"sampleLimit": 500000, "labelValueLengthLimit": 500}
    assert set(monitor["spec"]["targetLabels"]) <= set(service["metadata"]["labels"])
    assert monitor["spec"]["podTargetLabels"] == ["team"]


def test_nothing_of_the_operator_is_made_unasked() -> None:
    """Without the switches no custom kind is rendered: a cluster without the operator accepts the chart."""
    assert not {kind for kind, _ in rendered("minimal")} & set(CRDS)
