"""The command line: help, messages and exit codes, mostly as a real process."""

import io
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from exporter.cli import run, topic_liveness
from tests.integration.serving import Exporter
from tests.programs import Call
from tests.waiting import until

COMMAND = [sys.executable, "-m", "exporter"]
NOWHERE = "127.0.0.1:1"
"""Nobody listens here."""
SOON = {"TOPIC_LIVENESS_POLL__REQUEST_TIMEOUT": "1s"}

BAD = """\
clusters:
  - name: prod
    kafka: {bootstrap.servers: host:9092, sasl.password: '${KAFKA_PASSWORD}'}
poll: {interval: 2s}
"""


def environment(**more: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TOPIC_LIVENESS_")}
    return {**inherited, "PYTHONPATH": str(Path(__file__).parents[2]), **more}


def ran(
    folder: Path, *command: str | Path, environ: Mapping[str, str] | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.run(
        command, check=False, cwd=folder, env=environment(**environ or {}), text=True, timeout=60, **given
    )


@pytest.mark.parametrize("command", ["", *topic_liveness.commands], ids=lambda name: name or "all")
def test_help_is_golden(command: str, golden: Callable[[str, str], None]) -> None:
    arguments = [command, "--help"] if command else ["--help"]
    shown = CliRunner().invoke(topic_liveness, arguments, prog_name="topic-liveness", terminal_width=80)
    assert shown.exit_code == 0
    golden(f"help/{command or 'topic-liveness'}.txt", shown.output)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Usage: topic-liveness [OPTIONS] COMMAND"),
        (["serv"], "No such command 'serv'"),
        (["once", "--boot", "x"], "No such option '--boot'"),
        (["once"], "clusters must name at least one cluster"),
        (["audit", "--bootstrap-server", NOWHERE, "--cluster", "dr"], "--cluster must be one of default, got 'dr'"),
        (["audit", "--bootstrap-server", NOWHERE, "--silent-for", "30x"], "must be a duration such as 30s"),
        (["audit", "--bootstrap-server", NOWHERE, "--output", "/no/such/x.html"], "must be in a folder that exists"),
        (["audit", "--bootstrap-server", NOWHERE, "--output", "a" * 300 + "/x"], "must be in a folder that exists"),
    ],
)
def test_misuse_ends_with_2_and_a_message(arguments: list[str], message: str, call: Call) -> None:
    refused = call(*arguments)
    assert refused.returncode == 2
    assert message in refused.stderr
    assert "Traceback" not in refused.stderr
    assert refused.stdout == ""


def test_check_config_prints_what_loads_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call) -> None:
    (tmp_path / "prod.yaml").write_text(BAD.replace("2s", "20s"))
    with monkeypatch.context() as variables:
        variables.setenv("KAFKA_PASSWORD", "hunter2")
        variables.setenv("TOPIC_LIVENESS_LOG__LEVEL", "error")
        good = call("check-config", "-c", "prod.yaml")
    assert (good.returncode, good.stderr) == (0, "")
    assert good.stdout.startswith("# OK, clusters: prod. Every setting in force:\n")
    assert "hunter2" not in good.stdout
    shown = yaml.safe_load(good.stdout)
    assert shown["clusters"][0]["kafka"] == {"bootstrap.servers": "host:9092", "sasl.password": "***"}
    assert (shown["poll"]["interval"], shown["log"]["level"]) == ("20s", "error")
    (tmp_path / "again.yaml").write_text(good.stdout)
    assert call("check-config", "-c", "again.yaml").stdout == good.stdout


def test_each_property_that_librdkafka_refuses_is_named_without_secrets(tmp_path: Path) -> None:
    (tmp_path / "prod.yaml").write_text(
        "clusters:\n"
        f"  - {{name: a, kafka: {{bootstrap.servers: '{NOWHERE}', sasl.passwrd: hunter2}}}}\n"
        f"  - name: b\n    kafka: {{bootstrap.servers: '{NOWHERE}',\n"
        "      security.protocol: SASL, sasl.password: hunter2}\n"
    )
    refused = ran(tmp_path, *COMMAND, "serve", "-c", "prod.yaml")
    assert refused.returncode == 2
    assert refused.stderr.startswith("Error: 2 problems in the configuration:\n  - cluster a: ")
    first, second = refused.stderr.splitlines()[1:]
    assert 'No such configuration property: "sasl.passwrd"; next step: ' in first
    assert 'Invalid value "SASL" for configuration property "security.protocol"; next step: ' in second
    assert "hunter2" not in refused.stderr


def test_a_closed_pipe_gives_no_traceback(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    ended = ran(tmp_path, *COMMAND, "check-config", "--bootstrap-server", NOWHERE, stdout=writing)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (1, "")


def test_a_full_disk_is_a_message(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        ended = ran(tmp_path, *COMMAND, "once", "--bootstrap-server", NOWHERE, environ=SOON, stdout=full)
    assert ended.returncode == 1
    assert ended.stderr.endswith("Error: the output could not be written: No space left on device\n")
    assert "Traceback" not in ended.stderr


def test_text_that_the_locale_lacks_is_escaped(tmp_path: Path) -> None:
    """Findings, groups and owners hold any character, also where a terminal shows few."""
    (tmp_path / "prod.yaml").write_text("poll: {interval: 5 Stück}", encoding="utf-8")
    checked = ran(tmp_path, *COMMAND, "doctor", "--config", "prod.yaml", environ={"PYTHONIOENCODING": "ascii"})
    assert checked.returncode == 2
    assert r"got '5 St\xfcck'" in checked.stdout
    assert checked.stderr == ""


def test_metrics_are_printed_in_utf_8(monkeypatch: pytest.MonkeyPatch) -> None:
    """`once` in any locale: an escape that Prometheus does not know would make the file useless."""
    out = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding="ascii"))
    monkeypatch.setattr("exporter.cli.client_settings", lambda *_: None)
    monkeypatch.setattr("exporter.app.once", lambda _, shown: shown.write('{consumergroup="naïve"}'))
    run(["once"])
    assert out.getvalue() == '{consumergroup="naïve"}'.encode()


def test_ctrl_c_ends_a_command_with_130(tmp_path: Path) -> None:
    patient = environment(TOPIC_LIVENESS_POLL__REQUEST_TIMEOUT="30s", TOPIC_LIVENESS_LOG__LEVEL="debug")
    command = [*COMMAND, "offsets", "--time", "latest", "--bootstrap-server", NOWHERE]
    with subprocess.Popen(command, cwd=tmp_path, env=patient, stderr=subprocess.PIPE, text=True) as waiting:
        assert waiting.stderr is not None
        assert any("Connection refused" in line for line in waiting.stderr)
        waiting.send_signal(signal.SIGINT)
        _, rest = waiting.communicate(timeout=60)
    assert waiting.returncode == 130
    assert rest.endswith("interrupted\n") and "Traceback" not in rest


def test_serve_ends_with_0_after_a_signal(tmp_path: Path) -> None:
    """Ctrl-C ends `serve` with 0 also while no broker answers; the longest durations overflow nothing meanwhile."""
    longest = "36500d"
    settings = {
        "POLL__INTERVAL": "1d",
        "POLL__REQUEST_TIMEOUT": "1s",  # the one that the test has to wait for
        "TIERED__INTERVAL": "1d",
        "GROUPS__INTERVAL": "1d",
        "GROUPS__TOLERANCE": longest,
        "EXPECTATIONS__MAX_AGE": longest,
        "HISTORY__ENABLED": "false",
        "OVERRIDES": f"[{{topics: a, max_silence: {longest}}}, {{topics: b, muted_until: 9999-12-31}}]",
        "LOG__FORMAT": "json",
    }
    variables = {f"TOPIC_LIVENESS_{name}": value for name, value in settings.items()}
    with Exporter(tmp_path, NOWHERE, **variables) as serving:
        until(lambda: "poll failed" in serving.log.read_text(), "a failed poll")
        assert serving.page("/-/healthy").text == "healthy\n"
        assert serving.page("/-/ready").status_code == 503
        assert "cluster-unreachable" in serving.page("/").text
        assert serving.page("/metrics").status_code == 200
        serving.process.send_signal(signal.SIGINT)
        assert serving.process.wait(60) == 0
    for line in serving.log.read_text().splitlines():
        assert set(json.loads(line)) == {"time", "level", "logger", "message"}


def test_overrides_and_outages_that_no_argument_can_hold_reach_the_job(tmp_path: Path) -> None:
    instead = tmp_path / "instead" / "spark_rollups"
    instead.mkdir(parents=True)
    (instead / "__init__.py").touch()
    (instead / "job.py").write_text(
        "import json, sys\nfor one in sys.argv:\n    if one[0] == '@':\n        print(len(json.load(open(one[1:]))))\n"
    )
    names = [f"{number:0249}" for number in range(500)]
    span = {"since": "2026-03-01T02:00Z", "until": "2026-03-01T09:30Z"}
    settings = {
        "overrides": [{"topics": name, "retired": True} for name in names],
        "outages": [{"topics": name, **span} for name in names],
    }
    (tmp_path / "prod.yaml").write_text(json.dumps(settings))
    path = os.pathsep.join([str(instead.parent), environment()["PYTHONPATH"]])
    done = ran(tmp_path, *COMMAND, "rollup", "-c", "prod.yaml", environ={"PYTHONPATH": path})
    assert (done.returncode, done.stdout) == (0, "500\n500\n"), done.stderr


@pytest.mark.parametrize("command", ["rollup", "report"])
def test_a_job_runs_no_code_of_the_working_directory(tmp_path: Path, command: str) -> None:
    (tmp_path / "jinja2.py").write_text("raise SystemExit('code of the working directory ran')\n")
    (tmp_path / "h").mkdir()
    done = ran(tmp_path, Path(sys.executable).with_name("topic-liveness"), command, "--history", "h")
    assert done.returncode == 2
    assert "the history folder 'h' holds no spool files" in done.stderr


@pytest.mark.parametrize("command", ["rollup", "report"])
def test_rollup_without_spark_names_the_extra(
    command: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setitem(sys.modules, "delta", None)
    assert run([command, "--history", "h"]) == 2
    assert (
        f"Error: {command} needs Spark, and pyspark, delta is not installed. "
        "In a checkout install it with `pip install '.[spark]'`, or run the image with Spark"
    ) in capfd.readouterr().err


@pytest.mark.parametrize("command", topic_liveness.commands)
def test_a_configuration_that_cannot_be_used_ends_with_2(
    tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("prod.yaml").write_text(BAD)
    needed = {"explain": ["orders"], "offsets": ["--time", "latest"]}.get(command, [])
    assert run([command, *needed, "--config", "prod.yaml"]) == 2
    shown = capfd.readouterr()
    assert "poll.interval must be at least 5s, got '2s' (from prod.yaml:4)" in shown.err + shown.out


@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "pipe"])
def test_only_a_terminal_gets_progress_and_colours(tmp_path: Path, terminal: bool) -> None:
    mine, theirs = pty.openpty() if terminal else os.pipe()
    with subprocess.Popen(
        [*COMMAND, "once", "--bootstrap-server", NOWHERE],
        cwd=tmp_path,
        env=environment(TOPIC_LIVENESS_POLL__REQUEST_TIMEOUT="1s", TERM="xterm", COLUMNS="200"),
        stdout=subprocess.DEVNULL,
        stderr=theirs,
    ) as asking:
        os.close(theirs)
        shown = b"".join(iter(lambda: _read(mine), b""))
        os.close(mine)
    assert asking.returncode == 1
    assert b"cluster-unreachable" in shown
    assert (b"polling default" in shown, b"\x1b[" in shown) == (terminal, terminal)


def _read(descriptor: int) -> bytes:
    """Read on; b"" at the end, which a terminal reports as an error."""
    try:
        return os.read(descriptor, 65536)
    except OSError:
        return b""
