"""Other ways to run it: systemd units, docker compose, the release; checked as far as that needs no engine."""

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from exporter.settings.load import load_settings
from tests.programs import program

ROOT = Path(__file__).parents[2]
SYSTEMD = ROOT / "deploy" / "systemd"
COMPOSE = ROOT / "deploy" / "compose"
SERVICES = sorted(SYSTEMD.glob("*.service"))
UNITS = sorted(SYSTEMD.iterdir())


def settings_of(unit: Path) -> dict[str, str]:
    """The settings of a unit; of one that stands there twice the last."""
    return dict(re.findall(r"^(\w+)=(.*)$", unit.read_text(encoding="utf-8"), re.MULTILINE))


@pytest.mark.parametrize("unit", SERVICES, ids=lambda unit: unit.stem)
def test_units_run_without_rights_on_one_history(unit: Path) -> None:
    found = settings_of(unit)
    assert (found["User"], found["StateDirectory"], found["DynamicUser"]) == ("topic-liveness", "topic-liveness", "yes")
    assert found["CapabilityBoundingSet"] == "" and found["NoNewPrivileges"] == "yes"
    assert (found["ProtectSystem"], found["ProtectHome"], found["PrivateDevices"]) == ("strict", "yes", "yes")
    verb = unit.stem.removeprefix("topic-liveness").removeprefix("-") or "serve"
    command = found["ExecStart"].removesuffix(" $OPTIONS")
    assert command.endswith(f"/topic-liveness {verb} --config /etc/topic-liveness/config.yaml")


def run(name: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program(name), *map(str, arguments)], capture_output=True, text=True, check=False)


def test_systemd_understands_every_line_of_the_units(tmp_path: Path) -> None:
    there = tmp_path / "topic-liveness"
    there.write_text("#!/bin/sh\n")
    there.chmod(0o755)
    for unit in UNITS:
        text = unit.read_text(encoding="utf-8").replace("/opt/topic-liveness/venv/bin/topic-liveness", str(there))
        (tmp_path / unit.name).write_text(text, encoding="utf-8")
    done = run("systemd-analyze", "verify", "--man=no", *(tmp_path / unit.name for unit in UNITS))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    broken = tmp_path / "broken.service"
    broken.write_text((tmp_path / "topic-liveness.service").read_text().replace("ProtectHome", "ProtectHouse"))
    assert "ProtectHouse" in run("systemd-analyze", "verify", "--man=no", broken).stderr


@pytest.mark.parametrize("unit", SERVICES, ids=lambda unit: unit.stem)
def test_systemd_finds_little_that_a_service_may_do(unit: Path) -> None:
    """``systemd-analyze security`` gives it at most 1.5 of 10: what is left is network, and for Java its own code."""
    done = run("systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=15", unit)
    assert done.returncode == 0, done.stdout + done.stderr


def test_compose_understands_the_example(tmp_path: Path) -> None:
    """Compose's own loader knows every key of it, and asks in words for the brokers where nobody names them."""
    done = run("compose-go", "-no-interpolation", "-format", "json", COMPOSE / "compose.yaml")
    assert done.returncode == 0, done.stderr
    assert {"exporter", "prometheus", "alertmanager", "grafana"} <= set(json.loads(done.stdout)["services"])
    assert "say where Kafka is" in run("compose-go", COMPOSE / "compose.yaml").stderr
    slip = tmp_path / "compose.yaml"
    slip.write_text((COMPOSE / "compose.yaml").read_text(encoding="utf-8").replace("read_only:", "readonly:"))
    assert "readonly" in run("compose-go", "-no-interpolation", slip).stderr


def test_compose_starts_commands_that_there_are(tmp_path: Path) -> None:
    compose = yaml.safe_load((COMPOSE / "compose.yaml").read_text(encoding="utf-8"))
    ours = {name: each for name, each in compose["services"].items() if "topic-liveness" in each["image"]}
    assert set(ours) == {"exporter", "backfill", "rollup", "report"}
    for service in ours.values():
        assert service["read_only"] and service["cap_drop"] == ["ALL"]
        assert {mount.split(":")[1] for mount in service["volumes"]} == {
            "/etc/topic-liveness/config.yaml",
            "/var/lib/topic-liveness",
        }
    for mount in (mount for service in compose["services"].values() for mount in service["volumes"]):
        source = mount.split(":")[0]
        assert (COMPOSE / source).resolve().exists() if source.startswith(".") else source in compose["volumes"], source
    path = tmp_path / "config.yaml"
    path.write_text((COMPOSE / "config.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    settings = load_settings(path, environ={"KAFKA_BOOTSTRAP": "broker:9092"})
    assert settings.history.folder == Path("/var/lib/topic-liveness")
    assert settings.clusters[0].kafka["bootstrap.servers"] == "broker:9092"


def test_prometheus_of_the_example_reads_its_configuration(tmp_path: Path) -> None:
    for source in (COMPOSE / "prometheus.yml", ROOT / "dashboards/alerts.yaml", ROOT / "dashboards/recording.yaml"):
        (tmp_path / source.name).write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    for done in (
        run("promtool", "check", "config", tmp_path / "prometheus.yml"),
        run("amtool", "check-config", ROOT / "dashboards/alertmanager.yaml"),
    ):
        assert done.returncode == 0, done.stdout + done.stderr


WORKFLOWS = sorted((ROOT / ".github/workflows").iterdir())


def test_the_workflows_are_what_github_runs() -> None:
    """actionlint knows every key, expression and input; an action is named by the commit of a release."""
    done = run("actionlint", "-no-color", *WORKFLOWS)
    assert done.returncode == 0, done.stdout + done.stderr
    for path in WORKFLOWS:
        for used in re.findall(r"uses: (.*)", path.read_text(encoding="utf-8")):
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", used), "a tag may move"
