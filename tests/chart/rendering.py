"""The chart as helm renders it, for each values file in ``ci``."""

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from tests.programs import program

ROOT = Path(__file__).parents[2]

CHART = ROOT / "helm" / "topic-liveness-exporter"

VALUES = sorted((CHART / "ci").glob("*.yaml"))

KUBERNETES = "1.34"

CRDS = {path.stem: json.loads(path.read_text("utf-8")) for path in (Path(__file__).parent / "crds").glob("*.json")}

SPARK = "ScheduledSparkApplication"

Manifest = dict[str, Any]


def helm(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program("helm"), *map(str, arguments)], capture_output=True, text=True, check=False)


@cache
def rendered(values: str, *settings: str) -> dict[tuple[str, str], Manifest]:
    """What the chart makes of a values file in ``ci`` and ``--set`` settings, by kind and name."""
    options = ["--values", str(CHART / "ci" / f"{values}-values.yaml")]
    options += [option for setting in settings for option in ("--set", setting)]
    run = helm("template", "release", CHART, "--namespace", "monitoring", "--kube-version", KUBERNETES, *options)
    assert run.returncode == 0, run.stderr
    manifests = [manifest for manifest in yaml.load_all(run.stdout, yaml.CSafeLoader) if manifest]
    return {(manifest["kind"], manifest["metadata"]["name"]): manifest for manifest in manifests}


def one(values: str, kind: str, suffix: str = "", *settings: str) -> Manifest:
    """The only manifest of a kind whose name ends with ``suffix``."""
    [manifest] = [
        found for (kind_, name), found in rendered(values, *settings).items() if kind_ == kind and name.endswith(suffix)
    ]
    return manifest


def alerts(values: str, *settings: str) -> dict[str, Manifest]:
    groups = one(values, "PrometheusRule", "", *settings)["spec"]["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"] if "alert" in rule}


def pod_of(manifest: Manifest) -> Manifest:
    """The pod specification of a deployment or a job."""
    spec = manifest["spec"]
    found: Manifest = (spec["jobTemplate"]["spec"] if "jobTemplate" in spec else spec)["template"]["spec"]
    return found


def pods(values: str) -> list[Manifest]:
    """Every pod specification, of the exporter and of the jobs."""
    return [pod_of(made) for (kind, _), made in rendered(values).items() if kind in {"Deployment", "CronJob"}]


def ours(pod: Manifest) -> list[Manifest]:
    """The containers that the chart itself puts into a pod."""
    return [container for container in pod["containers"] if container["name"] in {"exporter", "rollup", "report"}]


def names(values: Path) -> str:
    return values.name.removesuffix("-values.yaml")


FOLDERS = {"object-storage": "s3://liveness/prod", "spark-operator": "s3://liveness/prod"}
"""Where history is, of those that have it elsewhere than on the volume."""

EVERY = pytest.mark.parametrize("values", [names(path) for path in VALUES])


def check_schemas(manifest: Manifest) -> None:
    """Insist that Kubernetes or an operator accepts a manifest, strictly: no unknown field."""
    if manifest["kind"] in CRDS:
        jsonschema.validate(manifest, strict(CRDS[manifest["kind"]]))
    else:
        kubernetes_validate.validate(manifest, KUBERNETES, strict=True)


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
