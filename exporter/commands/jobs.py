"""The commands that start Spark, and what follows a report: their options."""

from pathlib import Path
from typing import NoReturn

import click

from exporter.commands.options import Command, OptionValue, config_option, job_settings
from exporter.commands.spark_job import become_job, list_report_options, list_rollup_options, run_job
from exporter.commands.usage import VerbatimHelp
from exporter.storage.files import Location, parse_location


def _spark_job(command: Command) -> Command:
    history = click.option("--history", metavar="DIR", help="The history folder; else history.folder.")
    as_of = click.option("--as-of", metavar="TIME", help="The verdicts as of this ISO 8601 moment; else now.")
    master = click.option("--master", metavar="URL", help="Where Spark runs; else rollup.master (local[*]).")
    arguments = click.argument("job_options", nargs=-1, type=click.UNPROCESSED)
    return config_option(history(as_of(master(arguments(command)))))


_PASS_ON = {"ignore_unknown_options": True}


@click.command(cls=VerbatimHelp, context_settings=_PASS_ON)
@_spark_job
def rollup(
    config: Path | None, history: str | None, as_of: str | None, master: str | None, job_options: tuple[str, ...]
) -> NoReturn:
    """Turn history into verdicts and publish expectations.

    Examples:
      topic-liveness rollup --config prod.yaml
      topic-liveness rollup --history /var/lib/topic-liveness --rebuild
      topic-liveness rollup --config prod.yaml --conf spark.driver.memory=4g

    Needs Java 17 and the extra: pip install '.[spark]' in a checkout. Each stage is
    printed with its time. After an interruption run it again.
    JOB_OPTIONS, for the Spark job:
      --conf NAME=VALUE   any Spark setting; repeatable
      --retention-days N  in place of rollup.retention
      --rebuild           learn everything again, from all windows
      --report            then write the weekly report, in the same session
    Exit codes: 0 done, 1 failed on the way, 2 could not start, 130 interrupted, 143
    ended by SIGTERM.
    """
    settings = job_settings(config, history, master)
    known = [*list_rollup_options(settings, as_of), *list_report_options(settings)]
    become_job("rollup", settings, as_of, *known, *job_options)


@click.command(cls=VerbatimHelp, context_settings=_PASS_ON)
@_spark_job
@click.option(
    "--output",
    type=OptionValue(parse_location),
    metavar="DIR",
    help="Folder or URI for the files; else published/reports in the history.",
)
@click.option("--deliver", "send", is_flag=True, help="Then send it to delivery.recipients.")
def report(
    *,
    config: Path | None,
    history: str | None,
    as_of: str | None,
    output: Location | None,
    send: bool,
    master: str | None,
    job_options: tuple[str, ...],
) -> int:
    """Write the weekly report as HTML, Markdown and JSON.

    Examples:
      topic-liveness report --config prod.yaml --deliver
      topic-liveness report --history /var/lib/topic-liveness --output reports/
      topic-liveness report --config prod.yaml --as-of 2026-03-02

    Needs Java 17 and the extra: pip install '.[spark]' in a checkout.
    JOB_OPTIONS, for the Spark job:
      --conf NAME=VALUE   any Spark setting; repeatable
    Exit codes: 0 done, 1 failed on the way (or not delivered to all), 2 could not start,
    130 interrupted, 143 ended by SIGTERM.
    """
    from exporter.commands import delivery as delivering

    settings = job_settings(config, history, master)
    if send and not settings.delivery.recipients:
        raise click.UsageError(f"--deliver: {delivering.NO_RECIPIENTS}")
    options = (
        *list_report_options(settings),
        *(() if output is None else ("--output", str(output))),
        *job_options,
    )
    if not send:
        become_job("report", settings, as_of, *options)
    if code := run_job("report", settings, as_of, *options):
        return code
    return delivering.deliver(output or delivering.last_written(delivering.reports_of(settings)), settings)


@click.command(cls=VerbatimHelp)
@config_option
@click.option("--history", metavar="DIR", help="The history folder; else history.folder.")
@click.option(
    "--report",
    "folder",
    type=OptionValue(parse_location),
    metavar="DIR",
    help="The folder of a report; else that of the newest day.",
)
def deliver(config: Path | None, history: str | None, folder: Location | None) -> int:
    """Send the last report to recipients who do not have it yet.

    Examples:
      topic-liveness deliver --config prod.yaml
      topic-liveness deliver --config prod.yaml --report reports/

    Sends to delivery.recipients, and notes in deliveries.json, beside the report, who got
    it. Only a server that answers late, or a kill, makes a second message. Starts no Spark.
    Exit codes: 0 everybody has it, 1 somebody does not, 2 could not start, 130
    interrupted, 143 ended by SIGTERM.
    """
    from exporter.commands import delivery as delivering

    settings = job_settings(config, history, None)
    if not settings.delivery.recipients:
        raise click.UsageError(delivering.NO_RECIPIENTS)
    return delivering.deliver(folder or delivering.last_dated(delivering.reports_of(settings)), settings)
