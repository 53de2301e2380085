"""Names and labels that YAML could read as something else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from tests.chart.rendering import CHART, CRDS, KUBERNETES, Manifest, helm, strict

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
ON_CLAIM = """
fullnameOverride: liveness
persistence: {storageClassName: "39"}
"""


def made_of(values: str, folder: Path, loader: type[yaml.SafeLoader] = yaml.SafeLoader) -> list[Manifest]:
    """The manifests of a release whose own name and namespace are digits, as they may be."""
    path = folder / "values.yaml"
    path.write_text(values, encoding="utf-8")
    run = helm("template", "1234", CHART, "--namespace", "5678", "--kube-version", KUBERNETES, "--values", path)
    assert run.returncode == 0, run.stderr
    return [manifest for manifest in yaml.load_all(run.stdout, loader) if manifest]


@pytest.mark.parametrize("values", [OF_DIGITS, IN_STORAGE, ON_CLAIM], ids=["secret", "storage", "claim"])
def test_names_of_digits_stay_text(values: str, tmp_path: Path) -> None:
    """Kubernetes takes them, as preview environments have them, and refuses numbers in their place."""
    for manifest in made_of(values, tmp_path):
        if manifest["kind"] in CRDS:
            jsonschema.validate(manifest, strict(CRDS[manifest["kind"]]))
            assert all(isinstance(label, str) for label in manifest["metadata"]["labels"].values())
        else:
            kubernetes_validate.validate(manifest, KUBERNETES, strict=True)
        assert isinstance(manifest["metadata"]["namespace"], str)


class _Once(yaml.SafeLoader):
    """Refuses a key that is there twice, as kustomize does."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        made = super().construct_mapping(node, deep)
        assert len(made) == len(node.value), f"a key is there twice: {[key.value for key, _ in node.value]}"
        return made


TWICE = """
commonLabels: {team: all, app.kubernetes.io/name: other, app.kubernetes.io/component: other}
dashboards: {enabled: true, labels: {team: own}}
networkPolicy: {enabled: true, labels: {team: own}}
persistence: {labels: {team: own}, annotations: {helm.sh/resource-policy: delete}}
podAnnotations: {checksum/config: mine}
podLabels: {app.kubernetes.io/component: mine}
rollup: {podLabels: {app.kubernetes.io/component: mine}}
report: {podLabels: {app.kubernetes.io/component: mine}}
prometheusRule: {enabled: true, labels: {team: own}}
service: {labels: {team: own, app.kubernetes.io/component: other}}
serviceAccount: {labels: {team: own}}
serviceMonitor: {enabled: true, labels: {team: own}}
"""


def test_a_name_that_user_and_chart_both_give_is_there_once(tmp_path: Path) -> None:
    """A manifest's own goes before that of all; those by which the parts of a release find each other before both.

    The user may let the claim go.
    """
    manifests = made_of(TWICE, tmp_path, _Once)
    made = {manifest["kind"]: manifest["metadata"]["labels"] for manifest in manifests}
    [claim] = [manifest for manifest in manifests if manifest["kind"] == "PersistentVolumeClaim"]
    assert claim["metadata"]["annotations"] == {"helm.sh/resource-policy": "delete"}
    assert "mine" not in str(manifests)
    teams = {kind: labels["team"] for kind, labels in made.items()}
    common = {"Deployment", "CronJob"}
    assert teams == {kind: "all" if kind in common else "own" for kind in made}
    assert made.keys() > common
    assert made["Service"]["app.kubernetes.io/name"] == "topic-liveness-exporter"
    assert made["Service"]["app.kubernetes.io/component"] == "exporter"
