"""The values of the chart: what is refused, what is taken, and their page."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import jsonschema
import pytest
import yaml

from documentation import values_schema
from documentation.settings import list_settings
from tests.chart.rendering import (
    CHART,
    KUBERNETES,
    ROOT,
    Manifest,
    helm,
    one,
    pod_of,
    rendered,
)
from tests.programs import program


@pytest.mark.parametrize(
    ("setting", "place"),
    [
        ("persistance.enabled=true", "persistance"),
        ("config.poll.interval=often", "interval"),
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
        ("prometheusRule.severities[0].severity=critical", "match"),
        (
            (
                "prometheusRule.enabled=true,"
                "prometheusRule.severities[0].severity=critical,prometheusRule.severities[0].match.topic=(["
            ),
            "missing closing ]",
        ),
        (
            (
                "prometheusRule.enabled=true,serviceMonitor.enabled=true,"
                "prometheusRule.severities[0].severity=critical,prometheusRule.severities[0].match.ownr=payments"
            ),
            "kafka_topic_info has no label ownr",
        ),
        (
            "serviceMonitor.enabled=true,serviceMonitor.basicAuth.username.key=u,serviceMonitor.authorization.type=Bearer",
            "basicAuth and authorization: the operator refuses both at once",
        ),
        ("objectStorage.existingSecret=s3", "config.history.folder=s3://BUCKET/FOLDER"),
        ("config.history.folder=/data", "folder"),
        ("image.digest=sha256:12", "digest"),
        ("podMonitor.targetLabels[0]=team", "podMonitor"),
        ("env[0].name=KAFKA_PASSWORD", "env"),
    ],
)
def test_a_slip_of_the_pen_is_refused(setting: str, place: str) -> None:
    """The values' schema names what it does not know or cannot use."""
    run = helm("template", CHART, "--kube-version", KUBERNETES, "--set", setting)
    assert run.returncode != 0
    assert place in run.stderr


def test_the_schema_of_the_configuration_is_golden(golden: Callable[[str, str], None]) -> None:
    """values.schema.json has every setting of the exporter, as its own schema has it."""
    golden(str(values_schema.FILE), values_schema.complete_schema())


CLUSTERS: Manifest = {"clusters": [{"name": "prod", "kafka": {"bootstrap.servers": "broker:9092"}}]}

GOOD = sorted((ROOT / "tests/unit/config/good").glob("*.yaml"))


@cache
def configuration() -> jsonschema.Draft7Validator:
    """What the chart lets through as ``config``."""
    schema = json.loads(values_schema.FILE.read_text(encoding="utf-8"))
    return jsonschema.Draft7Validator(schema["properties"]["config"])


def test_what_the_exporter_accepts_the_chart_lets_through() -> None:
    """Every configuration that loads is a good ``config`` too, but for a folder or an address that no pod has."""
    for path in GOOD:
        config = json.loads(json.dumps(yaml.safe_load(path.read_text(encoding="utf-8")), default=str))
        rejected = [error.json_path for error in configuration().iter_errors(config)]
        assert set(rejected) <= {"$.history.folder", "$.web.listen"}, path.stem


LISTS = {"clusters", "replicas", "overrides", "outages", "calendars", "owners"}


def test_a_setting_with_a_typo_is_refused() -> None:
    """One letter more than the name of a setting is unknown, in its section and in an entry of a list."""
    for setting in [path for path, _, _ in list_settings() if path.split(".")[0] not in LISTS]:
        section, _, name = setting.rpartition(".")
        slip = {f"{name}x": None}
        [error] = configuration().iter_errors({**CLUSTERS, section: slip} if section else {**CLUSTERS, **slip})
        assert f"'{name}x' was unexpected" in error.message
    for section in LISTS:
        entries = {**CLUSTERS, section: [*CLUSTERS["clusters"], {"namee": "prod"}]}
        assert "'namee' was unexpected" in " ".join(error.message for error in configuration().iter_errors(entries))


POD = "spec.template.spec"

EXPORTER = f"{POD}.containers.0"

JOB = "spec.jobTemplate.spec"

COMMON = [
    ("existing-secret", "existingSecret", "Deployment", f"{POD}.volumes.0.secret.secretName"),
    ("existing-secret", "image.repository", "Deployment", f"{EXPORTER}.image"),
    ("images", "image.tag", "Deployment", f"{EXPORTER}.image"),
    ("images", "imagePullSecrets", "Deployment", f"{POD}.imagePullSecrets"),
    ("images", "jobs.image.digest", "CronJob report", f"{JOB}.template.spec.containers.0.image"),
    ("common", "extraArgs", "Deployment", f"{EXPORTER}.args"),
    ("common", "lifecycle", "Deployment", f"{EXPORTER}.lifecycle"),
    ("sasl", "extraEnv", "Deployment", f"{EXPORTER}.env"),
    ("sasl", "extraVolumes", "Deployment", f"{POD}.volumes"),
    ("extras", "extraContainers", "Deployment", f"{POD}.containers"),
    ("extras", "initContainers", "Deployment", f"{POD}.initContainers"),
    ("extras", "annotations", "Deployment", "metadata.annotations"),
    ("extras", "commonLabels", "Service", "metadata.labels"),
    ("extras", "hostAliases", "Deployment", f"{POD}.hostAliases"),
    ("extras", "dnsConfig", "CronJob rollup", f"{JOB}.template.spec.dnsConfig"),
    ("common", "dnsPolicy", "Deployment", f"{POD}.dnsPolicy"),
    ("scheduling", "podAnnotations", "Deployment", "spec.template.metadata.annotations"),
    ("scheduling", "affinity", "Deployment", f"{POD}.affinity"),
    ("scheduling", "priorityClassName", "CronJob report", f"{JOB}.template.spec.priorityClassName"),
    ("network", "topologySpreadConstraints", "Deployment", f"{POD}.topologySpreadConstraints"),
    ("common", "nodeSelector", "Deployment", f"{POD}.nodeSelector"),
    ("common", "tolerations", "CronJob report", f"{JOB}.template.spec.tolerations"),
    ("common", "rollup.tolerations", "CronJob rollup", f"{JOB}.template.spec.tolerations"),
    ("common", "rollup.podLabels", "CronJob rollup", f"{JOB}.template.metadata.labels"),
    ("common", "rollup.ttlSecondsAfterFinished", "CronJob rollup", f"{JOB}.ttlSecondsAfterFinished"),
    ("common", "rollup.initContainers", "CronJob rollup", f"{JOB}.template.spec.initContainers"),
    ("common", "report.extraContainers", "CronJob report", f"{JOB}.template.spec.containers"),
    ("secret-files", "serviceAccount.annotations", "ServiceAccount", "metadata.annotations"),
    ("common", "serviceAccount.labels", "ServiceAccount", "metadata.labels"),
    ("common", "persistence.labels", "PersistentVolumeClaim", "metadata.labels"),
    ("shared-storage", "persistence.existingClaim", "Deployment", f"{POD}.volumes.1.persistentVolumeClaim.claimName"),
    ("common", "networkPolicy.labels", "NetworkPolicy", "metadata.labels"),
    ("operator", "serviceMonitor.labels", "ServiceMonitor", "metadata.labels"),
    ("common", "serviceMonitor.authorization", "ServiceMonitor", "spec.endpoints.0.authorization"),
    ("common", "serviceMonitor.relabelings", "ServiceMonitor", "spec.endpoints.0.relabelings"),
    ("pod-monitor", "startupProbe.httpGet", "Deployment", f"{EXPORTER}.startupProbe.httpGet"),
    ("operator", "prometheusRule.labels", "PrometheusRule", "metadata.labels"),
    ("operator", "prometheusRule.extraGroups", "PrometheusRule", "spec.groups"),
]
"""Values that users know from other charts: an example that sets each, and where it is rendered."""


def at(place: str, within: Any) -> Any:
    """What stands at a path of names and numbers."""
    for name in place.split("."):
        within = within[int(name)] if isinstance(within, list) else within[name]
    return within


@pytest.mark.parametrize(("values", "value", "manifest", "place"), COMMON)
def test_a_value_of_other_charts_is_taken(values: str, value: str, manifest: str, place: str) -> None:
    """What the example sets is in the manifest, beside what the chart has there."""
    given = at(value, yaml.safe_load((CHART / f"ci/{values}-values.yaml").read_text(encoding="utf-8")))
    made = at(place, one(values, *manifest.split()))
    if isinstance(given, dict):
        assert given.items() <= made.items()
    elif isinstance(given, list):
        assert given in [made[start : start + len(given)] for start in range(len(made))]
    else:
        assert made == given or (value.startswith(("image.", "jobs.")) and given in made)


def leaves(values: Manifest, above: str = "") -> Iterator[str]:
    """Paths of all values that are no maps, and of maps that the user fills."""
    for name, value in values.items():
        if isinstance(value, dict) and value and name not in WHOLE:
            yield from leaves(value, f"{above}{name}.")
        else:
            yield above + name


WHOLE = {
    *("config", "resources", "startupProbe", "livenessProbe", "readinessProbe", "podSecurityContext"),
    *("securityContext", "driver", "executor"),
}
"""Maps in Kubernetes' own words, or the exporter's: described as one."""


def test_the_page_of_the_chart_has_every_value() -> None:
    """README.md, which helm-docs makes of values.yaml, has a described row for each."""
    page = (CHART / "README.md").read_text(encoding="utf-8")
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    rows = dict(re.findall(r"^\| ([\w.]+) \| .* \| (.*) \|$", page, re.MULTILINE))
    missing = [path for path in leaves(values) if not rows.get(path)]
    assert not [path for path in missing if not any(path.startswith(f"{row}.") for row in rows)]


def test_the_page_of_the_chart_is_golden(golden: Callable[[str, str], None]) -> None:
    """README.md is what helm-docs makes of values.yaml."""
    command = [program("helm-docs"), "--dry-run", "--log-level=warning", "--chart-search-root", str(CHART.parent)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    golden(str(CHART / "README.md"), run.stdout)


def test_numbers_from_a_million_on_stay_whole_numbers() -> None:
    """Go prints 1209600 as 1.2096e+06 by default, which Kubernetes refuses."""
    settings = ("rollup.ttlSecondsAfterFinished=1209600", "rollup.activeDeadlineSeconds=1000000")
    job = one("minimal", "CronJob", "-rollup", *settings)["spec"]["jobTemplate"]["spec"]
    assert (job["ttlSecondsAfterFinished"], job["activeDeadlineSeconds"]) == (1209600, 1000000)


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


def test_releases_in_two_namespaces_share_a_third() -> None:
    """What lies in a namespace of monitoring has the release's own namespace in its name."""
    shared = ("serviceMonitor", "prometheusRule", "dashboards")
    settings = [f"{name}.{key}" for name in shared for key in ("enabled=true", "namespace=shared")]
    names = {
        own: {
            (kind, name)
            for (kind, name), manifest in rendered("minimal", f"namespaceOverride={own}", *settings).items()
            if manifest["metadata"].get("namespace") == "shared"
        }
        for own in ("here", "there")
    }
    assert names["here"] and not names["here"] & names["there"]
