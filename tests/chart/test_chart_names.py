"""Names and labels that YAML could read as something else."""

from pathlib import Path

import pytest
import yaml

from tests.chart.rendering import CHART, KUBERNETES, Manifest, check_schemas, helm

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


def made_of(values: str, folder: Path) -> list[Manifest]:
    """The manifests of a release whose own name and namespace are digits, as they may be."""
    path = folder / "values.yaml"
    path.write_text(values, encoding="utf-8")
    run = helm("template", "1234", CHART, "--namespace", "5678", "--kube-version", KUBERNETES, "--values", path)
    assert run.returncode == 0, run.stderr
    return [manifest for manifest in yaml.safe_load_all(run.stdout) if manifest]


@pytest.mark.parametrize("values", [OF_DIGITS, IN_STORAGE], ids=["secret", "storage"])
def test_names_of_digits_stay_text(values: str, tmp_path: Path) -> None:
    """Kubernetes takes them, as preview environments have them, and refuses numbers in their place."""
    for manifest in made_of(values, tmp_path):
        check_schemas(manifest)
        assert all(isinstance(label, str) for label in manifest["metadata"]["labels"].values())
        assert isinstance(manifest["metadata"]["namespace"], str)
