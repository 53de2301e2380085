"""The Helm chart: rendered by helm for each values file, checked against Kubernetes' own schemas."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from dashboards.publish import runbook_link
from documentation import values_schema
from documentation.settings import settings as every_setting
from exporter import __version__
from exporter.metrics.catalogue import CATALOGUE
from exporter.settings import load_settings
from exporter.storage import located
from tests.contract.test_docs import TEXTS, blocks
from tests.programs import program

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm" / "topic-liveness-exporter"
VALUES = sorted((CHART / "ci").glob("*.yaml"))
KUBERNETES = "1.34"
CRDS = {path.stem: json.loads(path.read_text("utf-8")) for path in (Path(__file__).parent / "crds").glob("*.json")}
SPARK = "ScheduledSparkApplication"

Manifest = dict[str, Any]


def helm(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run helm."""
    return subprocess.run([program("helm"), *map(str, arguments)], capture_output=True, text=True, check=False)


@cache
def rendered(values: str, *settings: str) -> dict[tuple[str, str], Manifest]:
    """What the chart makes of a values file in ``ci`` and ``--set`` settings, by kind and name."""
    options = ["--values", str(CHART / "ci" / f"{values}-values.yaml")]
    options += [option for setting in settings for option in ("--set", setting)]
    run = helm("template", "release", CHART, "--namespace", "monitoring", "--kube-version", KUBERNETES, *options)
    assert run.returncode == 0, run.stderr
    manifests = [manifest for manifest in yaml.safe_load_all(run.stdout) if manifest]
    return {(manifest["kind"], manifest["metadata"]["name"]): manifest for manifest in manifests}


def one(values: str, kind: str, suffix: str = "", *settings: str) -> Manifest:
    """The only manifest of a kind whose name ends with ``suffix``."""
    [manifest] = [
        found for (kind_, name), found in rendered(values, *settings).items() if kind_ == kind and name.endswith(suffix)
    ]
    return manifest


def pods(values: str) -> list[Manifest]:
    """Every pod specification, of the exporter and of the jobs."""
    return [
        manifest["spec"]["template"]["spec"]
        if kind == "Deployment"
        else manifest["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        for (kind, _), manifest in rendered(values).items()
        if kind in {"Deployment", "CronJob"}
    ]


def ours(pod: Manifest) -> list[Manifest]:
    """The containers that the chart itself puts into a pod."""
    return [container for container in pod["containers"] if container["name"] in {"exporter", "rollup", "report"}]


def names(values: Path) -> str:
    """The name of a values file in ``ci``."""
    return values.name.removesuffix("-values.yaml")


FOLDERS = {"object-storage": "s3://liveness/prod", "spark-operator": "s3://liveness/prod"}
"""Where history is, of those that have it elsewhere than on the volume."""
EVERY = pytest.mark.parametrize("values", [names(path) for path in VALUES])


@EVERY
def test_helm_finds_nothing_to_object_to(values: str) -> None:
    """``helm lint --strict`` passes."""
    run = helm("lint", "--strict", CHART, "--kube-version", KUBERNETES, "--values", CHART / f"ci/{values}-values.yaml")
    assert run.returncode == 0, run.stdout + run.stderr


@EVERY
def test_kubernetes_accepts_every_manifest(values: str) -> None:
    """All kinds pass the schemas of the API and of the operators, strictly: no unknown field."""
    kinds = set()
    for (kind, _), manifest in rendered(values).items():
        if kind in CRDS:
            jsonschema.validate(manifest, strict(CRDS[kind]))
        else:
            kubernetes_validate.validate(manifest, KUBERNETES, strict=True)
        kinds.add(kind)
    assert {"Deployment", "Service"} <= kinds


def strict(schema: Any) -> Any:
    """A schema that refuses fields it does not name; metadata is Kubernetes' own, patterns are Go's and no Python's."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: each if name == "metadata" else strict(each) for name, each in schema.items() if name != "pattern"}
    if isinstance(made.get("properties"), dict) and not made.get("x-kubernetes-preserve-unknown-fields"):
        made.setdefault("additionalProperties", False)
    return made


@pytest.mark.parametrize("values", [names(path) for path in VALUES if path.stem != "existing-secret-values"])
def test_the_rendered_configuration_is_good(values: str, tmp_path: Path) -> None:
    """The file in the ConfigMap loads without a problem; history lies on the mounted volume, or where values say."""
    path = tmp_path / "config.yaml"
    [text] = [
        found["data"]["config.yaml"] for found in rendered(values).values() if "config.yaml" in found.get("data", {})
    ]
    path.write_text(text, encoding="utf-8")
    settings = load_settings(path, environ={"KAFKA_PASSWORD": "secret"})
    assert settings.history.folder == located(FOLDERS.get(values, "/var/lib/topic-liveness"))
    assert settings.exporter == one(values, "Deployment")["metadata"]["name"]


@EVERY
def test_pods_run_without_rights(values: str) -> None:
    """No root, no writable image, no capability, no token of the API, in every container."""
    for pod in pods(values):
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["automountServiceAccountToken"] is False
        for container in ours(pod):
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] is True
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}


@EVERY
def test_mounts_have_volumes_and_jobs_share_the_history(values: str) -> None:
    """Every mount names a volume of its pod, and all pods hold the same history, or none has it on a volume."""
    histories = []
    for pod in pods(values):
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        histories.append(volumes.get("history"))
        assert ("history" in volumes) == (values not in FOLDERS)
        for container in ours(pod):
            assert {mount["name"] for mount in container["volumeMounts"]} <= set(volumes)
    assert all(history == histories[0] for history in histories)


@EVERY
def test_the_service_finds_the_exporter_and_not_the_jobs(values: str) -> None:
    """The selector fits the exporter's pod only, and the port exists there."""
    service = one(values, "Service")
    deployment = one(values, "Deployment")
    wanted = service["spec"]["selector"].items()
    assert wanted <= deployment["spec"]["template"]["metadata"]["labels"].items()
    for (kind, _), manifest in rendered(values).items():
        if kind == "CronJob":
            assert not wanted <= manifest["spec"]["jobTemplate"]["spec"]["template"]["metadata"]["labels"].items()
    [container] = ours(deployment["spec"]["template"]["spec"])
    assert service["spec"]["ports"][0]["targetPort"] == container["ports"][0]["name"]


def test_probes_ask_the_pages_that_the_exporter_has() -> None:
    """Liveness is /-/healthy and readiness /-/ready on the served port; a start may take five minutes."""
    [container] = one("minimal", "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["startupProbe"]["periodSeconds"] * container["startupProbe"]["failureThreshold"] == 300
    assert container["livenessProbe"]["httpGet"] == {"path": "/-/healthy", "port": "http"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/-/ready", "port": "http"}
    assert container["ports"] == [{"name": "http", "containerPort": 9797}]


def test_the_port_of_the_pod_is_the_one_that_the_configuration_listens_on() -> None:
    """With another web.listen the container, and so Service and probes, follow it."""
    manifest = one("minimal", "Deployment", "", "config.web.listen=0.0.0.0:8080")
    [container] = manifest["spec"]["template"]["spec"]["containers"]
    assert container["ports"] == [{"name": "http", "containerPort": 8080}]


@EVERY
def test_what_names_the_deployment_means_no_job(values: str) -> None:
    """The deployment's selector fits its own pod and no job's, so `kubectl exec deployment/...` is the exporter."""
    deployment = one(values, "Deployment")
    wanted = deployment["spec"]["selector"]["matchLabels"].items()
    assert wanted <= deployment["spec"]["template"]["metadata"]["labels"].items()
    jobs = [manifest for (kind, _), manifest in rendered(values).items() if kind == "CronJob"]
    for job in jobs:
        assert not wanted <= job["spec"]["jobTemplate"]["spec"]["template"]["metadata"]["labels"].items()


def test_a_changed_configuration_restarts_the_exporter() -> None:
    """The pod carries a checksum of the configuration."""
    checksums = {
        one("minimal", "Deployment", "", *settings)["spec"]["template"]["metadata"]["annotations"]["checksum/config"]
        for settings in ((), ("config.poll.interval=15s",))
    }
    assert len(checksums) == 2


def test_secrets_reach_the_exporter_by_environment_only() -> None:
    """The configuration names the variable, the pod takes it from a Secret, and the jobs do without it."""
    text = one("sasl", "ConfigMap")["data"]["config.yaml"]
    assert "sasl.password: ${KAFKA_PASSWORD}" in text
    [container] = one("sasl", "Deployment")["spec"]["template"]["spec"]["containers"]
    [variable] = container["env"]
    assert variable["valueFrom"]["secretKeyRef"] == {"name": "kafka-liveness", "key": "password"}
    assert container["envFrom"] == [{"secretRef": {"name": "more-secrets"}}]
    job = one("sasl", "CronJob", "-rollup")["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]
    assert {variable["name"] for variable in job["env"]} == {"HOME"}


def test_secret_files_lie_where_secrets_are_mounted_for_the_exporter_group() -> None:
    """Each file that the configuration names lies in a mounted secret, which the pod's group may read, and no other."""
    config = yaml.safe_load(one("secret-files", "ConfigMap")["data"]["config.yaml"])
    properties = [value for cluster in config["clusters"] for value in cluster["kafka"].values()]
    files = {value["file"] if isinstance(value, dict) else value for value in properties}
    pod = one("secret-files", "Deployment")["spec"]["template"]["spec"]
    [container] = pod["containers"]
    secrets = {volume["name"]: volume["secret"] for volume in pod["volumes"] if "secret" in volume}
    mounts = {
        mount["mountPath"]: secrets[mount["name"]] for mount in container["volumeMounts"] if mount["name"] in secrets
    }
    found = {str(file) for file in files if str(file).startswith("/")}
    assert {str(Path(file).parent) for file in found} == set(mounts)
    assert {secret["defaultMode"] for secret in mounts.values()} == {0o440}
    assert pod["securityContext"]["fsGroup"] > 0
    jobs = [manifest for (kind, _), manifest in rendered("secret-files").items() if kind == "CronJob"]
    assert jobs
    for job in jobs:
        volumes = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["volumes"]
        assert not any("secret" in volume for volume in volumes), "rollup and report need no broker"


def test_jobs_need_no_secret(tmp_path: Path) -> None:
    """What rollup and report read of the configuration loads without the password."""
    path = tmp_path / "config.yaml"
    path.write_text(one("sasl", "ConfigMap")["data"]["config.yaml"], encoding="utf-8")
    assert load_settings(path, environ={}, with_clusters=False).history.folder == Path("/var/lib/topic-liveness")


def images(values: str, *settings: str) -> tuple[str, str]:
    """What the exporter serves from, and what both jobs run from."""
    [exporter] = ours(one(values, "Deployment", "", *settings)["spec"]["template"]["spec"])
    jobs = [one(values, "CronJob", f"-{verb}", *settings)["spec"]["jobTemplate"] for verb in ("rollup", "report")]
    [image] = {job["spec"]["template"]["spec"]["containers"][0]["image"] for job in jobs}
    return exporter["image"], image


DIGEST = "sha256:" + 4 * "0123456789abcdef"


@pytest.mark.parametrize(
    ("values", "settings", "exporter", "jobs"),
    [
        ("minimal", (), f"topic-liveness-exporter:{__version__}", f"topic-liveness:{__version__}"),
        ("minimal", ("image.tag=9.0.1",), "topic-liveness-exporter:9.0.1", "topic-liveness:9.0.1"),
        ("minimal", (f"image.digest={DIGEST}",), f"topic-liveness-exporter@{DIGEST}", f"topic-liveness:{__version__}"),
        (
            "images",
            (),
            "registry.example.org/topic-liveness-exporter:0.1.0-company",
            f"registry.example.org/topic-liveness@{DIGEST}",
        ),
        ("existing-secret", (), *[f"registry.example.org/topic-liveness@{DIGEST}"] * 2),
        (
            "existing-secret",
            ("jobs.image.tag=9.0.1",),
            f"registry.example.org/topic-liveness@{DIGEST}",
            "registry.example.org/topic-liveness:9.0.1",
        ),
    ],
)
def test_jobs_run_from_the_image_with_spark(values: str, settings: tuple[str, ...], exporter: str, jobs: str) -> None:
    """The exporter serves from the small image; what the jobs leave open comes from that, but no digest of another."""
    assert images(values, *settings) == (exporter, jobs)


@pytest.mark.parametrize("verb", ["rollup", "report"])
def test_jobs_run_one_at_a_time_where_the_volume_is(verb: str) -> None:
    """Never two at once, on the exporter's node while the volume is bound to one."""
    job = one("minimal", "CronJob", f"-{verb}")["spec"]
    pod = job["jobTemplate"]["spec"]["template"]["spec"]
    assert job["concurrencyPolicy"] == "Forbid"
    assert job["jobTemplate"]["spec"]["activeDeadlineSeconds"] > 0, "one that hangs would keep all later ones out"
    assert pod["containers"][0]["args"] == [verb, "--config", "/etc/topic-liveness/config.yaml"]
    [near] = pod["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    labels = one("minimal", "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert near["labelSelector"]["matchLabels"].items() <= labels.items()


def test_on_shared_storage_jobs_run_anywhere() -> None:
    """With ReadWriteMany no node is asked for, an existing claim is used, and none is made."""
    job = one("shared-storage", "CronJob", "-rollup")["spec"]
    pod = job["jobTemplate"]["spec"]["template"]["spec"]
    assert "affinity" not in pod
    assert pod["containers"][0]["args"][-2:] == ["--conf", "spark.driver.memory=4g"]
    assert not [name for kind, name in rendered("shared-storage") if kind == "PersistentVolumeClaim"]


def test_a_job_without_history_is_refused() -> None:
    """Without persistence the jobs could read nothing: the message says what to set."""
    run = helm("template", CHART, "--kube-version", KUBERNETES, "--set", "persistence.enabled=false")
    assert run.returncode != 0
    assert "Set persistence.enabled=true, or rollup.enabled=false" in run.stderr


def test_the_report_is_sent_with_secrets_that_only_its_pods_have() -> None:
    """`--deliver`, and the files that the configuration names, in a mount of the secret; nothing of it elsewhere."""
    pod = one("delivery", "CronJob", "-report")["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert container["args"][-1] == "--deliver"
    mount = {"name": "delivery", "mountPath": "/run/secrets/delivery", "readOnly": True}
    assert mount in container["volumeMounts"]
    secret = {"secretName": "topic-liveness-delivery", "defaultMode": 0o440}
    assert {"name": "delivery", "secret": secret} in pod["volumes"]
    others = [manifest for (_, name), manifest in rendered("delivery").items() if not name.endswith("-report")]
    assert "topic-liveness-delivery" not in yaml.safe_dump_all(others)


def test_a_report_that_would_be_sent_to_nobody_is_refused() -> None:
    """The message says what to set."""
    run = helm("template", CHART, "--kube-version", KUBERNETES, "--set", "delivery.enabled=true")
    assert run.returncode != 0
    assert "delivery.enabled needs config.delivery.recipients" in run.stderr


@pytest.mark.parametrize(
    ("setting", "place"),
    [
        ("persistance.enabled=true", "persistance"),
        ("config.pol.interval=5s", "pol"),
        ("config.poll.intervall=5s", "intervall"),
        ("config.poll.interval=often", "interval"),
        ("config.groups.enabled=maybe", "enabled"),
        ("config.metrics.granularity=topics", "granularity"),
        ("config.rollup.retention.window=90d", "window"),
        ("config.overrides[0].topics=a,config.overrides[0].max_silenc=1h", "max_silenc"),
        ("config.overrides[0].topics=a,config.overrides[0].max_silence=often", "max_silence"),
        ("config.clusters[0].name=prod,config.clusters[0].kafka.bootstrap=b", "bootstrap.servers"),
        ("rollup.schedule=daily", "schedule"),
        ("rollup.activeDeadlineSeconds=0", "activeDeadlineSeconds"),
        ("service.port=http", "port"),
        ("serviceMonitor.intervall=30s", "intervall"),
        ("config.clusters=null", "clusters"),
        ("config.web.listen=127.0.0.1:9797", "listen"),
        ("prometheusRule.rules.TopicLivenessTopicDead.severity=urgent", "severity"),
        ("prometheusRule.rules.TopicDead.enabled=false", "TopicDead"),
        ("prometheusRule.rules.TopicLivenessTopicDead.labels.severity=urgent", "severity"),
        ("prometheusRule.extraGroups[0].name=ours,prometheusRule.extraGroups[0].rules[0].alert=Silent", "expr"),
        ("prometheusRule.extraGroups[0].name=ours,prometheusRule.extraGroups[0].rules[0].expr=up", "alert"),
        (
            (
                "prometheusRule.extraGroups[0].name=ours,prometheusRule.extraGroups[0].rules[0].expr=up,"
                "prometheusRule.extraGroups[0].rules[0].alert=Up,prometheusRule.extraGroups[0].rules[0].record=up:up"
            ),
            "rules/0",
        ),
        (
            (
                "prometheusRule.extraGroups[0].name=ours,prometheusRule.extraGroups[0].rules[0].expr=up,"
                "prometheusRule.extraGroups[0].rules[0].alert=Up,prometheusRule.extraGroups[0].rules[0].fro=5m"
            ),
            "fro",
        ),
        ("prometheusRule.extraGroups[0].rules[0].record=up:up,prometheusRule.extraGroups[0].rules[0].expr=up", "name"),
        ("dnsPolicy=Cluster", "dnsPolicy"),
        ("serviceMonitor.attachMetadata.nodes=true", "nodes"),
        ("rollup.ttlSecondsAfterFinished=-1", "ttlSecondsAfterFinished"),
        ("prometheusRule.runbookUrl=docs.example.org/runbook", "runbookUrl"),
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
        ("jobs.image.digest=sha256:12", "digest"),
        ("jobs.image.pullPolicy=Always", "pullPolicy"),
        ("podMonitor.scheme=tls", "scheme"),
        ("podMonitor.targetLabels[0]=team", "podMonitor"),
        ("rollup.concurrencyPolicy=Never", "concurrencyPolicy"),
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
    golden(str(values_schema.FILE), values_schema.complete())


CLUSTERS: Manifest = {"clusters": [{"name": "prod", "kafka": {"bootstrap.servers": "broker:9092"}}]}
GOOD = sorted((ROOT / "tests/unit/config/good").glob("*.yaml"))


@cache
def configuration() -> jsonschema.Draft7Validator:
    """What the chart lets through as ``config``."""
    schema = json.loads(values_schema.FILE.read_text(encoding="utf-8"))
    return jsonschema.Draft7Validator(schema["properties"]["config"])


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_what_the_exporter_accepts_the_chart_lets_through(path: Path) -> None:
    """Every configuration that loads is a good ``config`` too, but for a folder or an address that no pod has."""
    config = json.loads(json.dumps(yaml.safe_load(path.read_text(encoding="utf-8")), default=str))
    told = [error.json_path for error in configuration().iter_errors(config)]
    assert set(told) <= {"$.history.folder", "$.web.listen"}


LISTS = {"clusters", "replicas", "overrides", "outages", "calendars", "owners"}


@pytest.mark.parametrize("setting", [path for path, _, _ in every_setting() if path.split(".")[0] not in LISTS])
def test_a_setting_with_a_typo_is_refused(setting: str) -> None:
    """One letter more than the name of a setting is unknown, in its section."""
    section, _, name = setting.rpartition(".")
    slip = {f"{name}x": None}
    config = {**CLUSTERS, section: slip} if section else {**CLUSTERS, **slip}
    [error] = configuration().iter_errors(config)
    assert f"'{name}x' was unexpected" in error.message


@pytest.mark.parametrize("section", sorted(LISTS))
def test_a_typo_in_a_list_is_refused(section: str) -> None:
    """An entry of a list knows its settings as well."""
    entries = {**CLUSTERS, section: [*CLUSTERS["clusters"], {"namee": "prod"}]}
    assert "'namee' was unexpected" in " ".join(error.message for error in configuration().iter_errors(entries))


@pytest.mark.parametrize("name", ["alerts", "recording"])
def test_the_chart_carries_the_rules_of_the_dashboards(name: str) -> None:
    """The chart's copy of the rules is the one that promtool tests."""
    source, copy = ROOT / f"dashboards/{name}.yaml", CHART / f"files/{name}.yaml"
    assert copy.read_text() == source.read_text(), f"mend: cp dashboards/{name}.yaml {copy.relative_to(ROOT)}"


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


def promtool(rule: Manifest, folder: Path, *stories: Manifest) -> None:
    """Let promtool check the rules that were rendered, and tell stories of them."""
    (folder / "rules.yaml").write_text(yaml.safe_dump(rule["spec"]), encoding="utf-8")
    (folder / "stories.yaml").write_text(
        yaml.safe_dump({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": list(stories)}), "utf-8"
    )
    for command in (["check", "rules", "rules.yaml"], ["test", "rules", "stories.yaml"]):
        run = subprocess.run([program("promtool"), *command], capture_output=True, text=True, cwd=folder, check=False)
        assert run.returncode == 0, run.stdout + run.stderr


def test_values_change_single_rules(tmp_path: Path) -> None:
    """An alert is left out, another fires later and milder; every one carries the label; promtool accepts them."""
    manifest = one("rules", "PrometheusRule")
    promtool(manifest, tmp_path)
    alerts = {rule["alert"]: rule for group in manifest["spec"]["groups"] for rule in group["rules"] if "alert" in rule}
    assert "TopicLivenessReportLate" not in alerts and "TopicLivenessRollupLate" in alerts
    held = alerts["TopicLivenessTopicsHeld"]
    assert (held["for"], held["labels"]["severity"]) == ("1h", "warning")
    assert {rule["labels"]["source"] for rule in alerts.values()} == {"topic-liveness"}
    assert manifest["metadata"]["namespace"] == "monitoring"


def test_the_severity_of_a_dead_topic_goes_by_the_values(tmp_path: Path) -> None:
    """The first entry that matches counts; then a topic that nobody reads is a warning, and any other critical."""

    def series(name: str, value: int, **labels: str) -> Manifest:
        words = ",".join(f'{label}="{text}"' for label, text in {"job": "topic-liveness", **labels}.items())
        return {"series": f'{name}{{kafka_cluster="prod",{words}}}', "values": f"{value}x20"}

    topics = {"test.pay": "payments", "test.x": "", "unread": "", "read": ""}
    told = [series("kafka_topic_verdict", 1, topic=topic, verdict="dead") for topic in topics]
    told += [series("kafka_topic_info", 1, topic=topic, owner=owner) for topic, owner in topics.items()]
    told += [series("kafka_topic_consumergroups", int(topic == "read"), topic=topic) for topic in topics]
    severities = {"test.pay": "critical", "test.x": "info", "unread": "warning", "read": "critical"}
    expected = [
        {"labels": f'{{topic="{topic}",severity="{severity}"}}', "value": 1} for topic, severity in severities.items()
    ]
    firing = 'count by (topic, severity) (ALERTS{alertname="TopicLivenessTopicDead",alertstate="firing"})'
    moment = {"expr": firing, "eval_time": "10m", "exp_samples": expected}
    promtool(
        one("rules", "PrometheusRule"),
        tmp_path,
        {"interval": "1m", "input_series": told, "promql_expr_test": [moment]},
    )


def test_labels_that_severities_may_name() -> None:
    """Those of kafka_topic_info and what a relabeling adds; where nothing here scrapes any, which the notes name."""
    template = (CHART / "templates" / "_rules.tpl").read_text(encoding="utf-8")
    [info] = [metric for metric in CATALOGUE if metric.name == "kafka_topic_info"]
    assert set(info.labels) <= set(re.findall(r'"(\w+)"', re.findall(r"\$known := list (.*)", template)[0]))
    severity = "prometheusRule.severities[0].severity=info,prometheusRule.severities[0].match"
    assert one("pod-monitor", "PrometheusRule", "", f"prometheusRule.enabled=true,{severity}.tier=gold")
    told = 'extraManifests[0]=kind: {{ include "liveness.unknownLabels" . }}'
    chosen = f"prometheusRule.enabled=true,{severity}.tier=gold"
    by_hand = helm("template", CHART, "--kube-version", KUBERNETES, "--set", chosen, "--set", told)
    assert "kind: tier\n" in by_hand.stdout, by_hand.stderr
    assert 'with include "liveness.unknownLabels"' in (CHART / "templates" / "NOTES.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("expr", "told"), [("kafka_topic_silence_seconds > 60", ""), ("kafka_topic >> 60", "parse error")]
)
def test_promtool_checks_what_the_chart_cannot(expr: str, told: str, tmp_path: Path) -> None:
    """The command of docs/alerts.md accepts a rule in PromQL, and refuses one that the values' schema lets through."""
    [command] = [block for block in blocks(TEXTS["docs/alerts.md"], "") if block.startswith("helm template")]
    groups = [{"name": "ours", "rules": [{"alert": "Ours", "expr": expr}]}]
    values = tmp_path / "my-values.yaml"
    values.write_text(yaml.safe_dump({"prometheusRule": {"enabled": True, "extraGroups": groups}}), encoding="utf-8")
    folders = {str(Path(program(name)).parent) for name in ("helm", "promtool")}
    environment = {**os.environ, "PATH": os.pathsep.join([*folders, os.environ["PATH"]])}
    script = command.replace("my-values.yaml", f"{values} --kube-version {KUBERNETES}")
    done = subprocess.run(
        ["bash", "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode != 0) == bool(told), done.stderr
    assert told in done.stdout + done.stderr
    alerts = [rule for group in rules_of_the_files() for rule in group["rules"]]
    assert told or f"{len(alerts) + 1} rules found" in done.stdout


@pytest.mark.parametrize("path", sorted((ROOT / "dashboards/grafana").glob("*.json")), ids=lambda path: path.stem)
def test_dashboards_reach_the_sidecar_as_they_are(path: Path) -> None:
    """The chart's copy is the built one; its ConfigMap has the label, the folder and a link to the runbook."""
    copy = CHART / "files/dashboards" / path.name
    assert copy.read_text() == path.read_text(), f"mend: cp {path.relative_to(ROOT)} {copy.relative_to(ROOT)}"
    manifest = one("rules", "ConfigMap", f"-dashboard-{path.stem}")
    assert manifest["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert manifest["metadata"]["annotations"] == {"grafana_folder": "Kafka"}
    dashboard = json.loads(manifest["data"][f"topic-liveness-{path.name}"])
    built = json.loads(path.read_text(encoding="utf-8"))
    built["links"].insert(0, runbook_link("https://docs.example.org/topic-liveness/runbook.html"))
    assert dashboard == built


def test_dashboards_reach_an_exporter_by_the_scheme_of_its_monitor() -> None:
    """Where the monitor scrapes by https, links to an exporter's page begin so."""
    for scrape, schemes in (("serviceMonitor", "http,https"), ("podMonitor", "https,http")):
        values = "pod-monitor" if scrape == "podMonitor" else "operator"
        manifest = one(values, "ConfigMap", "-dashboard-exporter", "dashboards.enabled=true")
        board = json.loads(manifest["data"]["topic-liveness-exporter.json"])
        [scheme] = [each for each in board["templating"]["list"] if each["name"] == "scheme"]
        assert scheme["query"] == schemes


def test_an_unknown_alert_is_refused() -> None:
    """The message names the alert, and those that there are."""
    unknown = "prometheusRule.rules.TopicLivenessTopicDeath.enabled=false"
    run = helm("template", CHART, "--kube-version", KUBERNETES, "--set", f"prometheusRule.enabled=true,{unknown}")
    assert 'no alert is named "TopicLivenessTopicDeath"; the alerts are' in run.stderr
    assert "TopicLivenessTopicDead, TopicLivenessTopicsHeld" in run.stderr


def test_a_pod_is_scraped_with_tls_and_a_password_from_another_namespace() -> None:
    """The PodMonitor has what the operator needs, after the relabeling that the alert rules rely on."""
    monitor = one("pod-monitor", "PodMonitor")
    [endpoint] = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["relabelings"][0] == {"targetLabel": "job", "replacement": "topic-liveness"}
    assert (
        endpoint["relabelings"][1]["targetLabel"] == "node"
        and endpoint["metricRelabelings"][0]["targetLabel"] == "tier"
    )
    assert endpoint["scheme"] == "https" and endpoint["basicAuth"]["username"] == {
        "name": "liveness-web",
        "key": "user",
    }
    labels = one("pod-monitor", "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    [container] = ours(one("pod-monitor", "Deployment")["spec"]["template"]["spec"])
    assert endpoint["port"] == container["ports"][0]["name"]


def test_openshift_chooses_user_and_group() -> None:
    """No pod asks for a user, a group or an fsGroup; all else of the restricted profile is asked for."""
    for pod in pods("openshift"):
        assert set(pod["securityContext"]) == {"runAsNonRoot", "fsGroupChangePolicy", "seccompProfile"}
        for container in ours(pod):
            assert not {"runAsUser", "runAsGroup"} & set(container["securityContext"])


def test_a_configuration_from_a_secret_is_mounted_and_made_to_fit(tmp_path: Path) -> None:
    """No ConfigMap is made; exporter, history and port are set over it by the environment; the digest is the image."""
    pod = one("existing-secret", "Deployment")["spec"]["template"]["spec"]
    assert not [name for kind, name in rendered("existing-secret") if kind == "ConfigMap"]
    assert pod["volumes"][0] == {
        "name": "config",
        "secret": {"secretName": "kafka-liveness-config", "defaultMode": 0o440},
    }
    [container] = ours(pod)
    path = tmp_path / "config.yaml"
    path.write_text("clusters: [{name: prod, kafka: {bootstrap.servers: broker:9092}}]\nweb: {listen: 127.0.0.1:1}\n")
    settings = load_settings(path, environ={variable["name"]: variable["value"] for variable in container["env"]})
    assert (settings.web.listen, settings.history.folder) == ("0.0.0.0:9797", Path("/var/lib/topic-liveness"))
    assert container["ports"][0]["containerPort"] == 9797
    assert container["image"].startswith("registry.example.org/topic-liveness@sha256:0123")


def test_the_network_policy_lets_scrapes_in_and_the_broker_out() -> None:
    """It means the exporter's pod; without egress rules the exporter may connect anywhere."""
    policy = one("network", "NetworkPolicy")["spec"]
    labels = one("network", "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["ingress"][0]["ports"] == [{"port": "http", "protocol": "TCP"}]
    open_ = one("network", "NetworkPolicy", "", "networkPolicy.egress=null")["spec"]
    assert open_["policyTypes"] == ["Ingress"] and "egress" not in open_


def test_extras_stand_beside_the_exporter() -> None:
    """Containers, hosts, manifests and labels of the values are rendered; templates in manifests are filled in."""
    pod = one("extras", "Deployment")["spec"]["template"]["spec"]
    assert [each["name"] for each in pod["containers"]] == ["exporter", "proxy"]
    assert pod["initContainers"][0]["name"] == "wait" and pod["hostAliases"][0]["hostnames"] == ["broker"]
    assert "startupProbe" not in pod["containers"][0] and pod["containers"][0]["livenessProbe"]["periodSeconds"] == 60
    assert one("extras", "ConfigMap", "release-more")["data"] == {"of": "monitoring"}
    assert one("extras", "Secret")["stringData"] == {"password": "secret"}
    assert all(
        manifest["metadata"]["labels"]["team"] == "kafka"
        for (kind, name), manifest in rendered("extras").items()
        if name.startswith("release-topic-liveness")
    )
    job = one("extras", "CronJob", "-rollup")["spec"]
    assert (job["suspend"], job["concurrencyPolicy"], job["successfulJobsHistoryLimit"]) == (True, "Replace", 0)


POD = "spec.template.spec"
EXPORTER = f"{POD}.containers.0"
JOB = "spec.jobTemplate.spec"
COMMON = [
    ("existing-secret", "existingSecret", "Deployment", f"{POD}.volumes.0.secret.secretName"),
    ("existing-secret", "image.repository", "Deployment", f"{EXPORTER}.image"),
    ("images", "image.tag", "Deployment", f"{EXPORTER}.image"),
    ("images", "image.pullPolicy", "Deployment", f"{EXPORTER}.imagePullPolicy"),
    ("images", "imagePullSecrets", "Deployment", f"{POD}.imagePullSecrets"),
    ("images", "jobs.image.digest", "CronJob report", f"{JOB}.template.spec.containers.0.image"),
    ("common", "extraArgs", "Deployment", f"{EXPORTER}.args"),
    ("common", "lifecycle", "Deployment", f"{EXPORTER}.lifecycle"),
    ("sasl", "extraEnv", "Deployment", f"{EXPORTER}.env"),
    ("sasl", "extraEnvFrom", "Deployment", f"{EXPORTER}.envFrom"),
    ("sasl", "extraVolumes", "Deployment", f"{POD}.volumes"),
    ("sasl", "extraVolumeMounts", "Deployment", f"{EXPORTER}.volumeMounts"),
    ("extras", "extraContainers", "Deployment", f"{POD}.containers"),
    ("extras", "initContainers", "Deployment", f"{POD}.initContainers"),
    ("extras", "annotations", "Deployment", "metadata.annotations"),
    ("extras", "commonLabels", "Service", "metadata.labels"),
    ("extras", "hostAliases", "Deployment", f"{POD}.hostAliases"),
    ("extras", "dnsConfig", "CronJob rollup", f"{JOB}.template.spec.dnsConfig"),
    ("common", "dnsPolicy", "Deployment", f"{POD}.dnsPolicy"),
    ("common", "dnsPolicy", "CronJob rollup", f"{JOB}.template.spec.dnsPolicy"),
    ("scheduling", "podAnnotations", "Deployment", "spec.template.metadata.annotations"),
    ("scheduling", "podLabels", "Deployment", "spec.template.metadata.labels"),
    ("scheduling", "affinity", "Deployment", f"{POD}.affinity"),
    ("scheduling", "priorityClassName", "CronJob report", f"{JOB}.template.spec.priorityClassName"),
    ("scheduling", "service.annotations", "Service", "metadata.annotations"),
    ("network", "topologySpreadConstraints", "Deployment", f"{POD}.topologySpreadConstraints"),
    ("common", "nodeSelector", "Deployment", f"{POD}.nodeSelector"),
    ("common", "nodeSelector", "CronJob report", f"{JOB}.template.spec.nodeSelector"),
    ("common", "tolerations", "CronJob report", f"{JOB}.template.spec.tolerations"),
    ("common", "rollup.nodeSelector", "CronJob rollup", f"{JOB}.template.spec.nodeSelector"),
    ("common", "rollup.tolerations", "CronJob rollup", f"{JOB}.template.spec.tolerations"),
    ("common", "rollup.podLabels", "CronJob rollup", f"{JOB}.template.metadata.labels"),
    ("extras", "rollup.podAnnotations", "CronJob rollup", f"{JOB}.template.metadata.annotations"),
    ("common", "rollup.ttlSecondsAfterFinished", "CronJob rollup", f"{JOB}.ttlSecondsAfterFinished"),
    ("common", "rollup.initContainers", "CronJob rollup", f"{JOB}.template.spec.initContainers"),
    ("common", "report.podLabels", "CronJob report", f"{JOB}.template.metadata.labels"),
    ("common", "report.ttlSecondsAfterFinished", "CronJob report", f"{JOB}.ttlSecondsAfterFinished"),
    ("common", "report.initContainers", "CronJob report", f"{JOB}.template.spec.initContainers"),
    ("common", "report.extraContainers", "CronJob report", f"{JOB}.template.spec.containers"),
    ("secret-files", "serviceAccount.annotations", "ServiceAccount", "metadata.annotations"),
    ("common", "serviceAccount.labels", "ServiceAccount", "metadata.labels"),
    ("common", "persistence.labels", "PersistentVolumeClaim", "metadata.labels"),
    ("extras", "persistence.annotations", "PersistentVolumeClaim", "metadata.annotations"),
    ("shared-storage", "persistence.existingClaim", "Deployment", f"{POD}.volumes.1.persistentVolumeClaim.claimName"),
    ("common", "networkPolicy.labels", "NetworkPolicy", "metadata.labels"),
    ("operator", "serviceMonitor.labels", "ServiceMonitor", "metadata.labels"),
    ("common", "serviceMonitor.attachMetadata", "ServiceMonitor", "spec.attachMetadata"),
    ("common", "serviceMonitor.authorization", "ServiceMonitor", "spec.endpoints.0.authorization"),
    ("common", "serviceMonitor.relabelings", "ServiceMonitor", "spec.endpoints.0.relabelings"),
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


def test_a_job_goes_by_its_own_nodes_alone() -> None:
    """The chart's nodes and tolerations hold for a job that names none."""
    pods = {
        verb: one("common", "CronJob", f"-{verb}")["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        for verb in ("rollup", "report")
    }
    assert {verb: pod["nodeSelector"] for verb, pod in pods.items()} == {
        "rollup": {"pool": "batch"},
        "report": {"pool": "monitoring"},
    }
    assert {verb: [each["key"] for each in pod["tolerations"]] for verb, pod in pods.items()} == {
        "rollup": ["batch"],
        "report": ["monitoring"],
    }


def test_an_alert_has_labels_of_its_own() -> None:
    """They go over those of all alerts; the severity has a setting of its own, which checks it."""
    changed = "prometheusRule.ruleLabels.team=platform"
    groups = one("common", "PrometheusRule", "", changed)["spec"]["groups"]
    teams = {rule["alert"]: rule["labels"]["team"] for group in groups for rule in group["rules"] if "alert" in rule}
    assert teams.pop("TopicLivenessTopicDead") == "kafka" and set(teams.values()) == {"platform"}


def test_history_in_object_storage_needs_no_volume_and_no_node() -> None:
    """No claim, no mount, no pod near another; the secret and the region reach the exporter and both jobs."""
    assert not [name for kind, name in rendered("object-storage") if kind == "PersistentVolumeClaim"]
    for pod in pods("object-storage"):
        [container] = ours(pod)
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert "tmp" in mounts and "/var/lib/topic-liveness" not in mounts.values()
        assert {"secretRef": {"name": "liveness-s3"}} in container["envFrom"]
        assert {"name": "AWS_REGION", "value": "eu-central-1"} in container["env"]
        assert "podAffinity" not in pod.get("affinity", {})
    pod = one("object-storage", "CronJob", "-rollup")["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert "nodeAffinity" in pod["affinity"]
    assert {"configMapRef": {"name": "spark-proxy"}} in container["envFrom"]
    assert {"name": "ca", "mountPath": "/etc/company-ca", "readOnly": True} in container["volumeMounts"]


def test_a_configuration_from_a_secret_may_have_its_history_in_object_storage() -> None:
    """The chart is told where, and sets it over what the Secret says."""
    [container] = ours(
        one("existing-secret", "Deployment", "", "config.history.folder=gs://a/b")["spec"]["template"]["spec"]
    )
    assert {"name": "TOPIC_LIVENESS_HISTORY__FOLDER", "value": "gs://a/b"} in container["env"]


def test_an_affinity_of_a_job_adds_to_the_node_of_the_volume() -> None:
    """Where the exporter is, and there only on the nodes that the values name."""
    job = one("minimal", "CronJob", "-report", "report.affinity.nodeAffinity.x=1")["spec"]
    assert set(job["jobTemplate"]["spec"]["template"]["spec"]["affinity"]) == {"podAffinity", "nodeAffinity"}


def test_the_spark_operator_runs_the_rollup_by_the_configuration() -> None:
    """In place of the CronJob, as the command does it: the configuration has overrides, retention and false alarms."""
    template = one("spark-operator", SPARK)["spec"]["template"]
    assert [name for kind, name in rendered("spark-operator") if kind == "CronJob"] == [
        "release-topic-liveness-exporter-report"
    ]
    assert template["mainApplicationFile"].endswith("/exporter/__main__.py")
    assert template["arguments"] == ["rollup", "--config", "/etc/topic-liveness/config.yaml"]
    assert {"name": "config", "configMap": {"name": "release-topic-liveness-exporter"}} in template["volumes"]
    for part in (template["driver"], template["executor"]):
        assert {"name": "config", "mountPath": "/etc/topic-liveness", "readOnly": True} in part["volumeMounts"]
        assert {mount["name"] for mount in part["volumeMounts"]} <= {each["name"] for each in template["volumes"]}
        assert part["envFrom"] == [{"secretRef": {"name": "liveness-s3"}}]
        assert {each["name"] for each in part["env"]} == {"SPARK_DIST_CLASSPATH", "HOME", "AWS_REGION"}
        assert {"nodeSelector", "affinity", "priorityClassName", "annotations"} <= set(part)
        assert part["tolerations"][0]["key"] == "spark" and part["labels"]["team"] == "platform"
        assert (part["initContainers"][0]["name"], part["sidecars"][0]["name"]) == ("wait", "proxy")
    assert (
        template["driver"]["serviceAccount"] == "spark-operator-spark" and "serviceAccount" not in template["executor"]
    )
    assert template["executor"]["instances"] == 4 and template["timeToLiveSeconds"] == 86400
    for setting, words in (
        ("rollup.sparkOperator.enabled=true", "sparkOperator.image must name an image"),
        ("rollup.sparkOperator.enabled=true,rollup.sparkOperator.image=x", "needs ReadWriteMany"),
    ):
        assert words in helm("template", CHART, "--kube-version", KUBERNETES, "--set", setting).stderr


def test_the_spark_operator_mounts_a_volume_that_several_pods_can_write() -> None:
    """Without object storage driver and executors have the history where the exporter has it."""
    settings = ("rollup.sparkOperator.enabled=true", "rollup.sparkOperator.image=spark")
    template = one("shared-storage", SPARK, "", *settings)["spec"]["template"]
    for part in (template["driver"], template["executor"]):
        assert {"name": "history", "mountPath": "/var/lib/topic-liveness"} in part["volumeMounts"]
    claim = {"claimName": "liveness-history"}
    assert {"name": "history", "persistentVolumeClaim": claim} in template["volumes"]
    jsonschema.validate(one("shared-storage", SPARK, "", *settings), strict(CRDS[SPARK]))


def notes(values: str, folder: Path) -> str:
    """What helm prints after an installation of the release `liveness`."""
    copy = shutil.copytree(CHART, folder / "chart")
    text = (copy / "templates" / "NOTES.txt").read_text(encoding="utf-8")
    (copy / "templates" / "_notes.tpl").write_text(f'{{{{ define "notes" }}}}{text}{{{{ end }}}}', encoding="utf-8")
    (copy / "templates" / "notes.yaml").write_text('kind: Notes\ntext: {{ include "notes" . | quote }}\n', "utf-8")
    run = helm(
        *("template", "liveness", copy, "--namespace", "monitoring", "--kube-version", KUBERNETES),
        *("--values", CHART / "ci" / f"{values}-values.yaml", "--show-only", "templates/notes.yaml"),
    )
    assert run.returncode == 0, run.stderr
    return str(yaml.safe_load(run.stdout)["text"])


KUBECTL = """#!/bin/bash
echo "$*" >> calls
case "$*" in
  *" get scheduledsparkapplication "*) cat template.json ;;
  *" create -f -") cat > made.json ;;
esac
"""
"""Tells what it was asked, and gives the operator's object as the API server would."""


def test_a_first_run_on_the_operator_is_started_by_hand(tmp_path: Path) -> None:
    """Notes and page have commands for both: the rollup is what the schedule makes, the report a job of its CronJob."""
    told = notes("spark-operator", tmp_path)
    assert "from a CronJob: the Spark operator runs the rollup alone" in told
    commands = "".join(line[2:] for line in told.splitlines(keepends=True) if line.startswith("  "))
    [page] = [block for block in blocks(TEXTS["docs/spark.md"], "") if block.startswith("printf")]
    assert page in commands + "\n"
    template = one("spark-operator", SPARK)["spec"]["template"]
    (tmp_path / "template.json").write_text(json.dumps(template), encoding="utf-8")
    (tmp_path / "kubectl").write_text(KUBECTL, encoding="utf-8")
    (tmp_path / "kubectl").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run(["bash", "-ec", page], cwd=tmp_path, env=environment, check=True)
    made = json.loads((tmp_path / "made.json").read_text(encoding="utf-8"))
    assert made == {
        "apiVersion": one("spark-operator", SPARK)["apiVersion"],
        "kind": "SparkApplication",
        "metadata": {"name": "first-rollup"},
        "spec": template,
    }
    calls = (tmp_path / "calls").read_text(encoding="utf-8")
    for kind, verb in ((SPARK, "rollup"), ("CronJob", "report")):
        name = one("spark-operator", kind)["metadata"]["name"].replace("release-", "liveness-", 1)
        assert name.endswith(verb)
        assert f"{kind.lower()} {name} " in calls or f"--from={kind.lower()}/{name}\n" in calls


def test_a_first_run_without_the_operator_is_a_job(tmp_path: Path) -> None:
    """The notes start a job of each CronJob by its name."""
    told = notes("minimal", tmp_path)
    started = re.findall(r"create job first-(\w+) \\\n +--from=cronjob/(\S+)", told)
    names = {name.replace("release-", "liveness-", 1) for kind, name in rendered("minimal") if kind == "CronJob"}
    assert {name for _, name in started} == names and {verb for verb, _ in started} == {"rollup", "report"}
    assert "Spark operator" not in told


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


def test_chart_and_exporter_carry_one_version() -> None:
    """The chart runs the image of its own version."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["version"] == chart["appVersion"] == __version__


def installs() -> list[tuple[str, str]]:
    """Every `helm install` of a page, with the page."""
    return [
        (page, line) for page, text in TEXTS.items() for line in re.findall(r"^helm install .*$", text, re.MULTILINE)
    ]


@pytest.mark.parametrize(("page", "line"), installs())
def test_charts_are_installed_as_the_pages_say(page: str, line: str, tmp_path: Path) -> None:
    """The line renders the chart, with the values that stand on its page, or the smallest."""
    values = [block for block in blocks(TEXTS[page], "yaml") if block.startswith("config:")]
    smallest = (CHART / "ci" / "minimal-values.yaml").read_text(encoding="utf-8")
    (tmp_path / "my-values.yaml").write_text(values[0] if values else smallest, encoding="utf-8")
    words = [str(tmp_path / word) if word == "my-values.yaml" else word for word in shlex.split(line)[2:]]
    words = [str(ROOT / word) if word.startswith("helm/") else word for word in words]
    run = helm("template", *words, "--kube-version", KUBERNETES)
    assert run.returncode == 0, run.stderr
    assert "kind: Deployment" in run.stdout
