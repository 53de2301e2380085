"""The values of the chart: what is refused, what is taken, and their page."""

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from documentation import values_schema
from tests.chart.rendering import CHART, EVERY, KUBERNETES, ROOT, check_schemas, helm, one, pod_of, rendered
from tests.programs import program


@pytest.mark.parametrize(
    ("setting", "place"),
    [
        ("persistance.enabled=true", "persistance"),
        ("config.poll.intervall=30s", "intervall"),
        ("config.clusters[0].name=prod,config.clusters[0].kafka.bootstrap=b", "bootstrap.servers"),
        ("rollup.schedule=daily", "schedule"),
        ("serviceMonitor.intervall=30s", "intervall"),
        ("config.clusters=null", "clusters"),
        ("config.web.listen=127.0.0.1:9797", "listen"),
        ("prometheusRule.rules.TopicDead.enabled=false", "TopicDead"),
        ("prometheusRule.rules.TopicLivenessTopicDead.labels.severity=urgent", "severity"),
        ("prometheusRule.extraGroups[0].name=ours,prometheusRule.extraGroups[0].rules[0].alert=Silent", "expr"),
        ("prometheusRule.extraGroups[0].rules[0].record=up:up,prometheusRule.extraGroups[0].rules[0].expr=up", "name"),
        ("prometheusRule.runbookUrl=docs.example.org/runbook", "runbookUrl"),
        ("prometheusRule.runbookUrl=https://wiki.example.org/#/runbook", "runbookUrl"),
        (
            "serviceMonitor.enabled=true,serviceMonitor.basicAuth.username.key=u,serviceMonitor.authorization.type=Bearer",
            "basicAuth and authorization: the operator refuses both at once",
        ),
        ("objectStorage.existingSecret=s3", "config.history.folder=s3://BUCKET/FOLDER"),
        ("config.history.folder=/data", "folder"),
        ("image.digest=sha256:12", "digest"),
        ("podMonitor.targetLabels[0]=team", "podMonitor"),
        ("env[0].name=KAFKA_PASSWORD", "env"),
        ("persistence.enabled=false", "Set persistence.enabled=true, or rollup.enabled=false"),
        ("config.history.enabled=false", "Set config.history.enabled=true, or rollup.enabled=false"),
        ("config.history.enabled=false,rollup.enabled=false", "or report.enabled=false"),
        ("delivery.enabled=true,report.enabled=false", "Set report.enabled=true, or delivery.enabled=false"),
        ("delivery.enabled=true", "delivery.enabled needs config.delivery.recipients"),
        ("rollup.sparkOperator.enabled=true", "sparkOperator.image must name an image"),
        ("rollup.sparkOperator.enabled=true,rollup.sparkOperator.image=x", "needs ReadWriteMany"),
        (
            "prometheusRule.enabled=true,prometheusRule.rules.TopicLivenessTopicDeath.enabled=false",
            'no alert is named "TopicLivenessTopicDeath"; the alerts are ',
        ),
    ],
)
def test_a_slip_of_the_pen_is_refused(setting: str, place: str) -> None:
    run = helm("template", CHART, "--kube-version", KUBERNETES, "--set", setting)
    assert run.returncode != 0
    assert place in run.stderr


def empty(values: dict[str, Any], place: str = "") -> Iterator[str]:
    """The places of all empty lists and maps."""
    for name, value in values.items():
        if value in ([], {}):
            yield place + name
        elif isinstance(value, dict):
            yield from empty(value, f"{place}{name}.")


OPERATOR = "rollup.sparkOperator.enabled=true rollup.sparkOperator.image=spark config.history.folder=s3://bucket/folder"


@pytest.mark.parametrize("job", ["delivery.enabled=null", OPERATOR])
def test_a_key_whose_entries_are_all_commented_out_is_as_before(job: str) -> None:
    settings = ["prometheusRule.enabled=true", "networkPolicy.enabled=true", *job.split()]
    blank = [f"{place}=null" for place in empty(yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8")))]
    assert rendered("minimal", *settings, *blank) == rendered("minimal", *settings)


def test_the_schema_of_the_configuration_is_golden(golden: Callable[[str, str], None]) -> None:
    golden(str(values_schema.FILE), values_schema.complete_schema())


GOOD = sorted((ROOT / "tests/unit/config/good").glob("*.yaml"))


@cache
def configuration() -> jsonschema.Draft7Validator:
    schema = json.loads(values_schema.FILE.read_text(encoding="utf-8"))
    return jsonschema.Draft7Validator(schema["properties"]["config"])


def test_what_the_exporter_accepts_the_chart_lets_through() -> None:
    """Every configuration that loads is a good ``config`` too, but for a folder or an address that no pod has."""
    for path in GOOD:
        config = json.loads(json.dumps(yaml.safe_load(path.read_text(encoding="utf-8")), default=str))
        rejected = [error.json_path for error in configuration().iter_errors(config)]
        assert set(rejected) <= {"$.history.folder", "$.web.listen"}, path.stem


def leaves(tree: Any) -> Iterator[str]:
    """Every text and number of a YAML tree, as JSON has it within a text."""
    if isinstance(tree, dict | list):
        for value in tree.values() if isinstance(tree, dict) else tree:
            yield from leaves(value)
    elif not isinstance(tree, bool) and tree is not None:
        yield json.dumps(str(tree))[1:-1]


@EVERY
def test_what_an_example_sets_is_rendered(values: str) -> None:
    """No value is taken and then left out. Templates, patterns and how a volume is shared are there in other words."""
    given = yaml.safe_load((CHART / f"ci/{values}-values.yaml").read_text(encoding="utf-8")) or {}
    made = json.dumps(list(rendered(values).values()), default=str)
    missing = [text for name in given if name != "config" for text in leaves(given[name]) if text not in made]
    assert [text for text in missing if text != "ReadWriteMany" and not re.search(r"{{|\\", text)] == []


def test_the_page_of_the_chart_is_golden(golden: Callable[[str, str], None]) -> None:
    command = [program("helm-docs"), "--dry-run", "--log-level=warning", "--chart-search-root", str(CHART.parent)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    golden(str(CHART / "README.md"), run.stdout)


def test_a_later_name_keeps_the_volume() -> None:
    """With a claim of another name the exporter would begin with an empty history, without a word."""
    [claim] = [name for kind, name in rendered("minimal") if kind == "PersistentVolumeClaim"]
    for setting in ("fullnameOverride=liveness", "nameOverride=liveness"):
        found = rendered("minimal", setting)
        assert [name for kind, name in found if kind == "PersistentVolumeClaim"] == [claim], setting
        volumes = pod_of(one("minimal", "Deployment", "", setting))["volumes"]
        assert [one["persistentVolumeClaim"]["claimName"] for one in volumes if "persistentVolumeClaim" in one] == [
            claim
        ]


OF_DIGITS = """
fullnameOverride: liveness
nameOverride: "31"
existingSecret: "32"
priorityClassName: "1e3"
imagePullSecrets: [{name: "33"}]
serviceAccount: {name: "34"}
persistence: {existingClaim: "35"}
delivery: {enabled: true, existingSecret: "36"}
dashboards: {enabled: true}
networkPolicy: {enabled: true}
podDisruptionBudget: {enabled: true}
serviceMonitor: {enabled: true}
prometheusRule: {enabled: true, namespace: "37"}
"""
IN_STORAGE = """
fullnameOverride: liveness
config: {clusters: [{name: kafka, kafka: {bootstrap.servers: "kafka:9092"}}], history: {folder: "s3://bucket/folder"}}
objectStorage: {existingSecret: "38"}
imagePullSecrets: [{name: "33"}]
rollup: {sparkOperator: {enabled: true, image: spark}}
podMonitor: {enabled: true}
"""


@pytest.mark.parametrize("values", [OF_DIGITS, IN_STORAGE], ids=["secret", "storage"])
def test_names_of_digits_stay_text(values: str, tmp_path: Path) -> None:
    """Kubernetes takes them, as preview environments have them, and refuses numbers in their place."""
    path = tmp_path / "values.yaml"
    path.write_text(values, encoding="utf-8")
    run = helm("template", "1234", CHART, "--namespace", "5678", "--kube-version", KUBERNETES, "--values", path)
    assert run.returncode == 0, run.stderr
    for manifest in filter(None, yaml.safe_load_all(run.stdout)):
        check_schemas(manifest)
        assert all(isinstance(label, str) for label in manifest["metadata"]["labels"].values())
        assert isinstance(manifest["metadata"]["namespace"], str)
