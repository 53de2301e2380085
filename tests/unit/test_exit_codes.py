"""What every command has in common: exit codes, the name in its messages, and what it shows while it waits."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from exporter.cli import run, topic_liveness
from exporter.domain.exit_codes import ExitCode
from spark_rollups.job import main as spark_job
from tests.programs import Call
from tests.unit.test_cli import BAD, COMMAND, NOWHERE, cli, environment

COMMANDS = tuple(topic_liveness.commands)
SUBJECTS = {"explain": ["orders"], "offsets": ["--time", "latest"]}
"""Arguments without which a command does not begin."""

PASSED_ON = {
    "history",
    "as_of",
    "master",
    "overrides",
    "outages",
    "calendars",
    "zone",
    "links",
    "help",
    "false_alarms",
    "false_alarms_a_week",
}
"""Options of the Spark job that the command itself has, or fills from the configuration."""


def help_of(command: str) -> str:
    """What ``--help`` prints."""
    return CliRunner().invoke(topic_liveness, [command, "--help"], prog_name="topic-liveness", terminal_width=80).output


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unknown_option_ends_with_2_in_the_name_of_the_command(tmp_path: Path, command: str, call: Call) -> None:
    """The usage line begins as the person began, also where a Spark job refuses the option."""
    arguments = [command, *SUBJECTS.get(command, []), "--nonsense"]
    refused = cli(tmp_path, *arguments) if command in ("once", "rollup", "report") else call(*arguments)
    name = "python -m exporter" if command == "once" else "topic-liveness"
    assert refused.returncode == ExitCode.NOT_STARTED
    assert refused.stderr.startswith(f"Usage: {name} {command} ")
    assert "No such option '--nonsense'" in refused.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_a_configuration_that_cannot_be_used_ends_with_2(
    tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Every command that reads the configuration names its problem."""
    monkeypatch.chdir(tmp_path)
    Path("prod.yaml").write_text(BAD)
    assert run([command, *SUBJECTS.get(command, []), "--config", "prod.yaml"]) == ExitCode.NOT_STARTED
    shown = capfd.readouterr()
    assert "poll.interval must be at least 5s, got '2s' (from prod.yaml:4)" in shown.err + shown.out


@pytest.mark.parametrize("arguments", [["report", "--output"], ["deliver", "--report"]], ids=" ".join)
def test_a_folder_of_reports_is_a_path_or_a_uri(arguments: list[str], tmp_path: Path, call: Call) -> None:
    """A URI that names no storage is refused before anything is asked or made."""
    (tmp_path / "url").write_text("https://hooks.example.org/")
    (tmp_path / "prod.yaml").write_text("delivery: {recipients: [{url: {file: url}}]}")
    refused = call(*arguments, "s4://bucket/a", "--config", "prod.yaml")
    assert refused.returncode == ExitCode.NOT_STARTED
    assert f"Invalid value for {arguments[1]}: must be a path, or a URI that begins with s3://" in refused.stderr
    assert not (tmp_path / "s4:").exists()


@pytest.mark.parametrize("verb", ["rollup", "report"])
def test_help_lists_what_the_spark_job_takes(verb: str) -> None:
    """Nobody has to ask the job: its options and the command's are the same."""
    options = {option.name: option.opts[0] for option in spark_job.commands[verb].params}
    assert [opt for name, opt in options.items() if name not in PASSED_ON and f"  {opt} " not in help_of(verb)] == []


@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "pipe"])
def test_only_a_terminal_gets_progress_and_colours(tmp_path: Path, terminal: bool) -> None:
    """While `once` waits for a broker a terminal shows what for; elsewhere there is no control character."""
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
    assert asking.returncode == ExitCode.FOUND
    assert b"cluster-unreachable" in shown
    assert (b"polling default" in shown, b"\x1b[" in shown) == (terminal, terminal)


def _read(descriptor: int) -> bytes:
    """Read on; b"" at the end, which a terminal reports as an error."""
    try:
        return os.read(descriptor, 65536)
    except OSError:
        return b""
