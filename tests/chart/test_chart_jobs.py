"""The jobs of the chart: CronJobs, and the rollup on the Spark operator."""

import pytest
import yaml

from exporter import __version__
from tests.chart.rendering import CHART, KUBERNETES, SPARK, helm, one, ours, pod_of, pods, rendered


def images(values: str, *settings: str) -> tuple[str, str]:
    [exporter] = ours(pod_of(one(values, "Deployment", "", *settings)))
    jobs = [one(values, "CronJob", f"-{verb}", *settings)["spec"]["jobTemplate"] for verb in ("rollup", "report")]
    [image] = {job["spec"]["template"]["spec"]["containers"][0]["image"] for job in jobs}
    return exporter["image"], image


DIGEST = "sha256:" + 4 * "0123456789abcdef"


@pytest.mark.parametrize(
    ("values", "settings", "exporter", "jobs"),
    [
        ("minimal", (), f"topic-liveness-exporter:{__version__}", f"topic-liveness:{__version__}"),
        ("minimal", (f"image.digest={DIGEST}",), f"topic-liveness-exporter@{DIGEST}", f"topic-liveness:{__version__}"),
        (
            "images",
            (),
            "registry.example.org/topic-liveness-exporter:0.1.0-company",
            f"registry.example.org/topic-liveness@{DIGEST}",
        ),
        ("existing-secret", (), *[f"registry.example.org/topic-liveness@{DIGEST}"] * 2),
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


def test_the_report_is_sent_with_secrets_that_only_its_pods_have() -> None:
    pod = pod_of(one("delivery", "CronJob", "-report"))
    [container] = pod["containers"]
    assert container["args"][-1] == "--deliver"
    mount = {"name": "delivery", "mountPath": "/run/secrets/delivery", "readOnly": True}
    assert mount in container["volumeMounts"]
    secret = {"secretName": "topic-liveness-delivery", "defaultMode": 0o440}
    assert {"name": "delivery", "secret": secret} in pod["volumes"]
    others = [manifest for (_, name), manifest in rendered("delivery").items() if not name.endswith("-report")]
    assert "topic-liveness-delivery" not in yaml.safe_dump_all(others)


def test_history_in_object_storage_needs_no_volume_and_no_node() -> None:
    assert not [name for kind, name in rendered("object-storage") if kind == "PersistentVolumeClaim"]
    for pod in pods("object-storage"):
        [container] = ours(pod)
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert "tmp" in mounts and "/var/lib/topic-liveness" not in mounts.values()
        assert {"secretRef": {"name": "liveness-s3"}} in container["envFrom"]
        assert {"name": "AWS_REGION", "value": "eu-central-1"} in container["env"]
        assert "podAffinity" not in pod.get("affinity", {})
    pod = pod_of(one("object-storage", "CronJob", "-rollup"))
    [container] = pod["containers"]
    assert "nodeAffinity" in pod["affinity"]
    assert {"configMapRef": {"name": "spark-proxy"}} in container["envFrom"]
    assert {"name": "ca", "mountPath": "/etc/company-ca", "readOnly": True} in container["volumeMounts"]


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


@pytest.mark.parametrize("values", ["minimal", "spark-operator"])
@pytest.mark.parametrize("length", [4, 22, 53])
def test_names_of_jobs_leave_room_for_what_is_appended_to_them(values: str, length: int) -> None:
    """Kubernetes takes 52 characters of a CronJob, the Spark operator 43."""
    release = ("a-release-of-" + 40 * "x")[:length].rstrip("-")
    run = helm(
        *("template", release, CHART, "--kube-version", KUBERNETES),
        *("--values", CHART / "ci" / f"{values}-values.yaml"),
    )
    assert run.returncode == 0, run.stderr
    made = [(one["kind"], one["metadata"]["name"]) for one in yaml.safe_load_all(run.stdout) if one]
    jobs = {name: kind for kind, name in made if kind in {"CronJob", SPARK}}
    assert {name.rpartition("-")[2] for name in jobs} == {"rollup", "report"}
    for name, kind in jobs.items():
        assert len(name) <= {"CronJob": 52, SPARK: 43}[kind]
        assert name.startswith(release[:36]) and "--" not in name
    whole = f"{release}-topic-liveness-exporter"[:52].rstrip("-")
    claims = {name for kind, name in made if kind == "PersistentVolumeClaim"}
    assert claims == ({whole} if values == "minimal" else set()), "the volume keeps its name"
