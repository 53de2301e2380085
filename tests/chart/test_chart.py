"""The Helm chart: rendered by helm for each values file, checked against Kubernetes' own schemas."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from exporter import __version__
from exporter.settings.load import load_settings
from exporter.storage.files import parse_location
from tests.chart.rendering import (
    CHART,
    EVERY,
    FOLDERS,
    KUBERNETES,
    ROOT,
    VALUES,
    check_schemas,
    helm,
    names,
    one,
    ours,
    pod_of,
    pods,
    rendered,
)
from tests.contract.test_docs import TEXTS, blocks


@EVERY
def test_helm_finds_nothing_to_object_to(values: str) -> None:
    run = helm("lint", "--strict", CHART, "--kube-version", KUBERNETES, "--values", CHART / f"ci/{values}-values.yaml")
    assert run.returncode == 0, run.stdout + run.stderr


@EVERY
def test_kubernetes_accepts_every_manifest(values: str) -> None:
    for manifest in rendered(values).values():
        check_schemas(manifest)
    assert {"Deployment", "Service"} <= {kind for kind, _ in rendered(values)}


BLANK = [f"minimal config.{place}=null" for place in ("exporter", "history", "history.folder", "web", "web.listen")]


@pytest.mark.parametrize("given", [names(path) for path in VALUES if path.stem != "existing-secret-values"] + BLANK)
def test_the_rendered_configuration_is_good(given: str, tmp_path: Path) -> None:
    """The file in the ConfigMap loads without a problem; history lies on the mounted volume, or where values say."""
    values, *settings = given.split()
    path = tmp_path / "config.yaml"
    made = rendered(values, *settings).values()
    [text] = [each["data"]["config.yaml"] for each in made if "config.yaml" in each.get("data", {})]
    path.write_text(text, encoding="utf-8")
    found = load_settings(path, environ={"KAFKA_PASSWORD": "secret"})
    assert found.history.folder == parse_location(FOLDERS.get(values, "/var/lib/topic-liveness"))
    assert found.exporter == one(values, "Deployment")["metadata"]["name"]


@EVERY
def test_pods_run_without_rights_and_share_the_history(values: str) -> None:
    histories = []
    for pod in pods(values):
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["automountServiceAccountToken"] is False
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        histories.append(volumes.get("history"))
        assert ("history" in volumes) == (values not in FOLDERS)
        for container in ours(pod):
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] is True
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert {mount["name"] for mount in container["volumeMounts"]} <= set(volumes)
    assert all(history == histories[0] for history in histories)


@EVERY
def test_service_and_deployment_mean_the_exporter_and_no_job(values: str) -> None:
    """Both selectors fit the exporter's pod only, so `kubectl exec deployment/...` is the exporter; the port exists."""
    service, deployment = one(values, "Service")["spec"], one(values, "Deployment")["spec"]
    jobs = [job["spec"]["jobTemplate"]["spec"] for (kind, _), job in rendered(values).items() if kind == "CronJob"]
    for selector in (service["selector"], deployment["selector"]["matchLabels"]):
        assert selector.items() <= deployment["template"]["metadata"]["labels"].items()
        assert not [job for job in jobs if selector.items() <= job["template"]["metadata"]["labels"].items()]
    [container] = ours(deployment["template"]["spec"])
    assert service["ports"][0]["targetPort"] == container["ports"][0]["name"]


def test_probes_ask_the_pages_that_the_exporter_has() -> None:
    [container] = pod_of(one("minimal", "Deployment", "", "config.web.listen=0.0.0.0:8080"))["containers"]
    assert container["startupProbe"]["periodSeconds"] * container["startupProbe"]["failureThreshold"] == 300
    assert container["livenessProbe"]["httpGet"] == {"path": "/-/healthy", "port": "http"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/-/ready", "port": "http"}
    assert container["ports"] == [{"name": "http", "containerPort": 8080}]


def test_a_changed_configuration_restarts_the_exporter() -> None:
    checksums = {
        one("minimal", "Deployment", "", *settings)["spec"]["template"]["metadata"]["annotations"]["checksum/config"]
        for settings in ((), ("config.poll.interval=15s",))
    }
    assert len(checksums) == 2


def test_secrets_reach_the_exporter_by_environment_only() -> None:
    text = one("sasl", "ConfigMap")["data"]["config.yaml"]
    assert "sasl.password: ${KAFKA_PASSWORD}" in text
    [container] = pod_of(one("sasl", "Deployment"))["containers"]
    [variable] = container["env"]
    assert variable["valueFrom"]["secretKeyRef"] == {"name": "kafka-liveness", "key": "password"}
    assert container["envFrom"] == [{"secretRef": {"name": "more-secrets"}}]
    job = pod_of(one("sasl", "CronJob", "-rollup"))["containers"][0]
    assert {variable["name"] for variable in job["env"]} == {"HOME"}


def test_secret_files_lie_where_secrets_are_mounted_for_the_exporter_group() -> None:
    config = yaml.safe_load(one("secret-files", "ConfigMap")["data"]["config.yaml"])
    properties = [value for cluster in config["clusters"] for value in cluster["kafka"].values()]
    files = {value["file"] if isinstance(value, dict) else value for value in properties}
    pod = pod_of(one("secret-files", "Deployment"))
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
        volumes = pod_of(job)["volumes"]
        assert not any("secret" in volume for volume in volumes), "rollup and report need no broker"


def test_openshift_chooses_user_and_group() -> None:
    """No pod asks for a user, a group or an fsGroup; all else of the restricted profile is asked for."""
    for pod in pods("openshift"):
        assert set(pod["securityContext"]) == {"runAsNonRoot", "fsGroupChangePolicy", "seccompProfile"}
        for container in ours(pod):
            assert not {"runAsUser", "runAsGroup"} & set(container["securityContext"])


def test_a_configuration_from_a_secret_is_mounted() -> None:
    pod = pod_of(one("existing-secret", "Deployment"))
    assert not [name for kind, name in rendered("existing-secret") if kind == "ConfigMap"]
    assert pod["volumes"][0] == {
        "name": "config",
        "secret": {"secretName": "kafka-liveness-config", "defaultMode": 0o440},
    }
    assert ours(pod)[0]["image"].startswith("registry.example.org/topic-liveness@sha256:0123")


@pytest.mark.parametrize(
    "given", ["existing-secret", "common", "minimal extraArgs={-c,/vault/x.yaml} config.web.listen=:1"]
)
def test_a_configuration_that_the_chart_does_not_see_is_made_to_fit(given: str, tmp_path: Path) -> None:
    """It has the name, the port and the history that jobs, Service and the next pod know."""
    values, *settings = given.split()
    deployment = one(values, "Deployment", "", *settings)
    [container] = ours(pod_of(deployment))
    path = tmp_path / "config.yaml"
    path.write_text("clusters: [{name: prod, kafka: {bootstrap.servers: broker:9092}}]\nweb: {listen: 127.0.0.1:1}\n")
    found = load_settings(path, environ={variable["name"]: variable["value"] for variable in container["env"]})
    assert (found.web.listen, found.history.folder) == (":9797", Path("/var/lib/topic-liveness"))
    assert found.exporter == deployment["metadata"]["name"]
    assert container["ports"][0]["containerPort"] == 9797


def test_the_network_policy_lets_scrapes_in_and_the_broker_out() -> None:
    policy = one("network", "NetworkPolicy")["spec"]
    labels = one("network", "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["ingress"][0]["ports"] == [{"port": "http", "protocol": "TCP"}]
    open_ = one("network", "NetworkPolicy", "", "networkPolicy.egress=null")["spec"]
    assert open_["policyTypes"] == ["Ingress"] and "egress" not in open_


def test_chart_and_exporter_carry_one_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["version"] == chart["appVersion"] == __version__


def installs() -> list[tuple[str, str]]:
    return [
        (page, line) for page, text in TEXTS.items() for line in re.findall(r"^helm install .*$", text, re.MULTILINE)
    ]


@pytest.mark.parametrize(("page", "line"), installs())
def test_charts_are_installed_as_the_pages_say(page: str, line: str, tmp_path: Path) -> None:
    values = [block for block in blocks(TEXTS[page], "yaml") if block.startswith("config:")]
    smallest = (CHART / "ci" / "minimal-values.yaml").read_text(encoding="utf-8")
    (tmp_path / "my-values.yaml").write_text(values[0] if values else smallest, encoding="utf-8")
    arguments = [str(tmp_path / word) if word == "my-values.yaml" else word for word in shlex.split(line)[2:]]
    arguments = [str(ROOT / word) if word.startswith("helm/") else word for word in arguments]
    run = helm("template", *arguments, "--kube-version", KUBERNETES)
    assert run.returncode == 0, run.stderr
    assert "kind: Deployment" in run.stdout
