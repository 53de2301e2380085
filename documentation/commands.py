"""The reference of commands, from their help, and of exit codes."""

from __future__ import annotations

from click.testing import CliRunner

from exporter.cli import PROGRAM, topic_liveness
from exporter.domain.exit_codes import ExitCode


def describe_commands() -> str:
    """The help of each command."""
    return "\n\n".join(f"### `{name}`\n\n```text\n{_help(name)}```" for name in topic_liveness.commands)


def describe_exit_codes() -> str:
    """The table of exit codes."""
    rows = [f"| {code} | {code.meaning} |" for code in ExitCode]
    return "\n".join(["| code | meaning |", "|---|---|", *rows])


def _help(command: str) -> str:
    arguments = [command, "--help"]
    return CliRunner().invoke(topic_liveness, arguments, prog_name=PROGRAM, terminal_width=80).output
