"""The options of ``audit``. What it does is imported when it is called."""

import os
import sys
from pathlib import Path
from typing import Any

import click

from exporter.commands.options import (
    OptionValue,
    client_settings,
    cluster_option,
    clusters_named,
    source_options,
    topic_option,
)
from exporter.commands.usage import VerbatimHelp
from exporter.logs import set_up_logging
from exporter.settings.quantities import parse_duration

_STYLES = ("table", "json", "html")


@click.command(cls=VerbatimHelp)
@source_options
@cluster_option
@topic_option
@click.option(
    "--silent-for",
    type=OptionValue(parse_duration),
    metavar="DURATION",
    help="Only topics that are silent for that long, such as 30d.",
)
@click.option("--format", "style", type=click.Choice(_STYLES), default="table", show_default=True)
@click.option("--output", type=click.Path(path_type=Path), metavar="FILE", help="Instead of standard output.")
@click.option("-v", "--verbose", is_flag=True, help="The evidence for each topic, below it.")
def audit(config: Path | None, bootstrap_server: str | None, cluster: str | None, **wanted: Any) -> int:
    """List abandoned topics after one look at the brokers.

    Examples:
      topic-liveness audit --bootstrap-server localhost:9092
      topic-liveness audit --config prod.yaml --silent-for 30d
      topic-liveness audit --config prod.yaml --topic 'billing[.].*' --verbose
      topic-liveness audit --config prod.yaml --format html --output audit.html

    Needs no history, no running exporter and no Java. No record is read: it asks for the
    ends of partitions, the time of their newest records, topic settings, consumer groups
    and log sizes. Of silent topics it searches the past by the brokers' time index; each
    broker gets at most lookups_per_second (2000) look-ups a second. Ctrl-C prints
    what is known by then.
    Exit codes: 0 nothing is abandoned, overdue or unknown; 1 something is, or a cluster is
    not read; 2 could not start; 130 interrupted.
    """
    from exporter.commands import audit as auditing

    checked = auditing.AuditOptions(**wanted)
    if checked.output is not None and not os.path.isdir(checked.output.parent):
        raise click.BadParameter("must be in a folder that exists and that may be entered", param_hint="--output")
    settings = client_settings(config, bootstrap_server)
    # What it could not read stands in its output; the log would repeat it.
    set_up_logging("debug" if settings.log.level == "debug" else "critical", settings.log.format)
    return auditing.audit_to(sys.stdout, sys.stderr, clusters_named(settings, cluster), settings, checked)
