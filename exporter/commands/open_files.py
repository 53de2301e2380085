"""The limit of open files: each connection to a broker, each client of the pages and each file takes one."""

from __future__ import annotations

import resource

import click

LEAST_OPEN_FILES = 512
"""The pages alone take up to 256 connections."""


def raise_limit_of_open_files() -> None:
    """Raise the soft limit to the hard one, for children too. Raises ClickException where it is too low."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < LEAST_OPEN_FILES:
        raise click.ClickException(
            f"the limit of open files must be at least {LEAST_OPEN_FILES}, got {hard}: raise it with `ulimit -Hn`, "
            "LimitNOFILE= of systemd or the limits of the container runtime"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
