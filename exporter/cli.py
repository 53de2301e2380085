"""The ``topic-liveness`` command."""

import errno
import os
import resource
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NoReturn

import click

from exporter import __version__
from exporter.commands.audit_options import audit
from exporter.commands.jobs import deliver, report, rollup
from exporter.commands.options import (
    OptionValue,
    check_properties,
    client_settings,
    cluster_option,
    clusters_named,
    config_option,
    exporter_options,
    job_settings,
    print_any_text,
    source_options,
    topic_option,
    warn_of_exposed,
)
from exporter.commands.usage import CONFIGURATION, DOCTOR, OFFSETS, OVERVIEW, Commands
from exporter.domain.exit_codes import ExitCode
from exporter.logs import set_up_logging
from exporter.settings.errors import SettingsError
from exporter.waiting import show_waiting

PROGRAM = "topic-liveness"


@click.group(cls=Commands, commands=[audit], epilog=OVERVIEW, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name=PROGRAM)
def topic_liveness() -> None:
    """Which Kafka topics are still alive: a Prometheus exporter that learns from history."""


@topic_liveness.command(epilog=CONFIGURATION)
@source_options
def serve(config: Path | None, bootstrap_server: str | None) -> int:
    """Poll, serve /metrics and write history until stopped.

    Examples:
      topic-liveness serve --bootstrap-server localhost:9092
      topic-liveness serve --config prod.yaml

    Pages: / (status), /metrics, /-/healthy, /-/ready. SIGTERM or Ctrl-C writes the
    open history window, then exits. A restart reads a changed configuration.
    Exit codes: 0 stopped by a signal, 1 history was lost, 2 could not start.
    """
    from exporter.domain.ports import SourceError
    from exporter.kafka.process import ClientProcess
    from exporter.settings.load import load_settings

    settings = load_settings(config, bootstrap_server, os.environ)
    set_up_logging(settings.log.level, settings.log.format)
    # For children too.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with ExitStack() as ending:
        processes = {cluster.name: ClientProcess(cluster.name) for cluster in settings.clusters}
        # Clients start up while this process imports the rest.
        for process in processes.values():
            ending.callback(process.close)
            with suppress(SourceError):  # the first call tries again
                process.start()
        from exporter.app import serve as run_exporter
        from exporter.factory.sources import connect

        sources = connect(settings, processes)
        warn_of_exposed(settings, sources)
        return run_exporter(settings, processes, sources)


@topic_liveness.command()
@source_options
def once(config: Path | None, bootstrap_server: str | None) -> int:
    """Poll every cluster once and print the metrics.

    Examples:
      topic-liveness once --bootstrap-server localhost:9092
      topic-liveness once --config prod.yaml > metrics.prom

    Writes no history.
    Exit codes: 0 every cluster answered, 1 one did not, 2 could not start, 130 interrupted.
    """
    settings = client_settings(config, bootstrap_server)
    from exporter import app

    print_any_text("utf-8")  # as Prometheus reads it
    return app.once(settings, sys.stdout)


@topic_liveness.command()
@source_options
def check_config(config: Path | None, bootstrap_server: str | None) -> int:
    """Check the configuration and print every setting in force.

    Example:
      topic-liveness check-config --config prod.yaml

    All problems of settings are listed at once, each with its place. If there are
    none, it lists those of web.config_file, and then for each cluster the first property
    that librdkafka refuses. Secrets are printed as ***. No broker is contacted.
    Exit codes: 0 valid, 2 not.
    """
    from exporter.settings.load import dump_yaml, load_settings
    from exporter.web.config_file import WebConfigError, WebConfigFile

    settings = load_settings(config, bootstrap_server, os.environ)
    try:
        WebConfigFile(settings.web.config_file)
    except WebConfigError as error:
        raise SettingsError((f"web.config_file: {error}",)) from None
    for line in check_properties(settings):
        click.echo(f"Warning: {line}", err=True)
    names = ", ".join(cluster.name for cluster in settings.clusters)
    click.echo(f"# OK, clusters: {names}. Every setting in force:\n{dump_yaml(settings)}", nl=False)
    return ExitCode.DONE


@topic_liveness.command()
@source_options
@cluster_option
@click.option("--horizon", metavar="DURATION", help="How far to look back; else backfill.horizon (56d).")
@click.option("--slot", metavar="DURATION", help="Length of a slot; else backfill.slot (1h). Must divide an hour.")
@click.option("--again", is_flag=True, help="Also of partitions whose history an earlier backfill wrote.")
def backfill(
    config: Path | None,
    bootstrap_server: str | None,
    cluster: str | None,
    horizon: str | None,
    slot: str | None,
    again: bool,
) -> int:
    """Fill history from records that the brokers still have.

    Examples:
      topic-liveness backfill --config prod.yaml
      topic-liveness backfill --config prod.yaml --cluster prod --horizon 14d
      topic-liveness backfill --config prod.yaml --slot 15m

    Asks the brokers' time index for the offset at the start of each slot, as far back
    as retention and the horizon reach. No record is read. Run it once, before the first
    rollup. The exporter may be running and is not slowed down: each broker gets at most
    lookups_per_second (2000) look-ups a second.
    It can be interrupted. The next run writes what is missing: partitions that were not
    reached, that failed, or that are new; each up to its first poll.
    Exit codes: 0 done, 1 something could not be filled, 2 could not start, 130
    interrupted.
    """
    given = [("--horizon", "backfill.horizon", horizon), ("--slot", "backfill.slot", slot)]
    settings = client_settings(config, bootstrap_server, given)
    clusters_named(settings, cluster)
    from exporter.commands import backfill as backfilling

    return backfilling.backfill(settings, cluster, sys.stderr, again=again)


for _job in (rollup, report, deliver):
    topic_liveness.add_command(_job)


def _parse_subject(text: str) -> object:
    from exporter.commands.explain import Subject

    return Subject.parse(text)


@topic_liveness.command()
@click.argument("subject", metavar="TOPIC[:PARTITION]", type=OptionValue(_parse_subject))
@config_option
@exporter_options
@click.option("--history", metavar="DIR", help="Ask no exporter: read what is published in this history folder.")
@click.option("--cluster", metavar="NAME", help="The cluster, where several have the topic.")
@click.option("--format", "style", type=click.Choice(["text", "json"]), default="text", show_default=True)
def explain(
    subject: Any,
    config: Path | None,
    url: str | None,
    history: str | None,
    cluster: str | None,
    style: str,
    **access: Any,
) -> int:
    """Explain why a topic or partition has its verdict.

    Examples:
      topic-liveness explain orders --config prod.yaml
      topic-liveness explain orders:3 --url http://localhost:9797
      topic-liveness explain orders --history /var/lib/topic-liveness
      topic-liveness explain orders --config prod.yaml --format json | jq .evidence

    Shows the silence and its score, who reads it, its copies, and what would change the
    verdict. It asks the exporter at --url, else at web.listen of the configuration. Where
    none answers, or with --history alone, it reads what the last rollup published.
    Exit codes: 0 explained, 1 nothing is known of it, 2 could not start, 130 interrupted.
    """
    from exporter.commands import explain as explaining
    from exporter.commands.api_client import Access, ApiError

    settings = job_settings(config, history, None)
    try:
        exporter = (
            explaining.UNASKED if history and url is None else explaining.exporter_for(url, settings, Access(**access))
        )
        with show_waiting(f"asking for {subject.topic}"):
            found = explaining.explanation_of(subject, settings, cluster, exporter)
    except (ApiError, explaining.ExplainError) as error:
        click.echo(f"Error: {error}", err=True)
        return ExitCode.NOT_STARTED if isinstance(error, ApiError) else ExitCode.FOUND
    if not found.answered and style == "json":
        click.echo(f"as of the last rollup; exporter: {found.exporter}", err=True)
    explaining.write(sys.stdout, found, style, time.time())
    return ExitCode.DONE


def _parse_time(text: str) -> object:
    from exporter.commands.offsets import parse_time

    return parse_time(text)


@topic_liveness.command(epilog=OFFSETS)
@topic_option
@click.option(
    "--time",
    "times",
    multiple=True,
    required=True,
    type=OptionValue(_parse_time),
    metavar="TIME",
    help="What to look up; repeatable.",
)
@source_options
@cluster_option
@click.option("--internal", is_flag=True, help="Internal topics too, such as __consumer_offsets.")
@click.option("--format", "style", type=click.Choice(["table", "json"]), default="table", show_default=True)
def offsets(config: Path | None, bootstrap_server: str | None, cluster: str | None, **wanted: Any) -> int:
    """Print offsets at a time, or why there are none.

    Examples:
      topic-liveness offsets --topic orders --time latest --bootstrap-server localhost:9092
      topic-liveness offsets --topic 'orders|refunds' --time earliest --time latest -c prod.yaml
      topic-liveness offsets --topic 'billing[.].*' --time 2026-03-03T12:00:00Z -c prod.yaml
      topic-liveness offsets --topic orders --time -2h --format json -c prod.yaml | jq .

    No record is read. Without --topic the configured topics are listed.
    Exit codes: 0 every look-up was answered, even where no record matches; 1 a partition or
    cluster could not be read, or no topic matches; 2 could not start; 130 interrupted.
    """
    from exporter.commands import offsets as listing

    settings = client_settings(config, bootstrap_server)
    return listing.list_to(sys.stdout, sys.stderr, clusters_named(settings, cluster), settings, **wanted)


@topic_liveness.command(epilog=DOCTOR)
@source_options
@cluster_option
@click.option("--format", "style", type=click.Choice(["text", "json"]), default="text", show_default=True)
def doctor(config: Path | None, bootstrap_server: str | None, cluster: str | None, style: str) -> int:
    """Check what the exporter needs, and say how to fix it.

    Examples:
      topic-liveness doctor --bootstrap-server localhost:9092
      topic-liveness doctor --config prod.yaml
      topic-liveness doctor --config prod.yaml --format json | jq '.[] | select(.severity != "ok")'

    Run it where the exporter runs, as its user. No record is read and nothing is written.
    Exit codes: 0 at most notes, 1 a warning or an error, 2 the configuration cannot be
    used, 130 interrupted.
    """
    from exporter.doctor import examination as checks
    from exporter.doctor.findings import write
    from exporter.settings.load import load_settings

    try:
        settings = load_settings(config, bootstrap_server, os.environ)
    except SettingsError as error:
        write(sys.stdout, checks.explain_unusable(error), style)
        return ExitCode.NOT_STARTED
    # The findings report everything; the log would repeat it.
    set_up_logging("debug" if settings.log.level == "debug" else "critical", settings.log.format)
    with show_waiting("checking"):
        findings = checks.examine(settings, clusters_named(settings, cluster))
    write(sys.stdout, findings, style)
    return checks.exit_code(findings)


def run(arguments: Sequence[str] | None = None, program: str = PROGRAM) -> int:
    """Run the command line; return its exit code. Errors become one message on standard error.

    ``program`` is what the person typed.
    """
    print_any_text()
    try:
        code = topic_liveness.main(args=arguments, prog_name=program, standalone_mode=False)
        sys.stdout.flush()
    except SettingsError as error:
        click.echo(f"Error: {error}", err=True)
        return ExitCode.NOT_STARTED
    except click.ClickException as error:
        error.show()
        return ExitCode.NOT_STARTED
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return ExitCode.INTERRUPTED
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.ENOSPC):
            raise
        if error.errno == errno.ENOSPC:
            click.echo(f"Error: the output could not be written: {error.strerror}", err=True)
        # The reader of the output is gone (`topic-liveness once | head`). click does the same.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.FOUND
    return code if isinstance(code, int) else ExitCode.DONE


def main(program: str = PROGRAM) -> NoReturn:
    """Entry point of the command."""
    sys.exit(run(program=program))
