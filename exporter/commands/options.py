"""What commands have in common: options of the command line, and settings by the file, variables and options."""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from exporter.logs import set_up_logging
from exporter.settings.errors import SettingsError

if TYPE_CHECKING:
    from exporter.kafka.process import RemoteClient
    from exporter.settings.schema import ClusterSettings, Settings

log = logging.getLogger(__name__)

Command = TypeVar("Command", bound=Callable[..., object])


class OptionValue(click.ParamType):  # type: ignore[type-arg] # click 8.2 has no type argument
    """A value that a function parses, which raises ValueError with the rule."""

    def __init__(self, parse: Callable[[str], object]) -> None:
        self.name = parse.__name__
        self._parse = parse

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> object:
        """Return what it is parsed to; a value that breaks the rule is a misuse."""
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(f"{error}, got {value!r}", param, ctx)


def _parse_pattern(text: str) -> str:
    from exporter.settings.rules import check_regex

    return check_regex(text)


config_option = click.option(
    "-c", "--config", type=click.Path(path_type=Path), metavar="FILE", help="The configuration, a YAML file."
)
bootstrap_server_option = click.option(
    "--bootstrap-server", metavar="HOST:PORT", help="Instead of clusters in a file: one cluster, named 'default'."
)
cluster_option = click.option("--cluster", metavar="NAME", help="Only this one of the configured clusters.")
topic_option = click.option(
    "--topic",
    "topics",
    multiple=True,
    type=OptionValue(_parse_pattern),
    metavar="REGEX",
    help="Topics whose whole name matches; repeatable.",
)


def file_option(name: str, text: str) -> Callable[[Command], Command]:
    """Return an option that names a file."""
    return click.option(f"--{name}-file", type=click.Path(path_type=Path), metavar="FILE", help=text)


def exporter_options(command: Command) -> Command:
    """Add the options that say which running exporter is asked, and how."""
    for option in (
        file_option("password", "That user's password."),
        click.option("--username", metavar="NAME", help="A user of its web configuration file."),
        file_option("key", "The key of that certificate; else it is in the same file."),
        file_option("cert", "A client certificate for it, in PEM form."),
        file_option("ca", "The CA that signed its certificate; else those that the system trusts."),
        click.option("--url", metavar="URL", help="A running exporter, such as http://localhost:9797."),
    ):
        command = option(command)
    return command


def source_options(command: Command) -> Command:
    """Add the options that say which clusters there are."""
    return config_option(bootstrap_server_option(command))


def client_settings(
    config: Path | None, bootstrap_server: str | None, options: Sequence[tuple[str, str, str | None]] = ()
) -> Settings:
    """Load the settings, check the properties with librdkafka, and set up logging."""
    from exporter.settings.load import load_settings

    settings = load_settings(config, bootstrap_server, os.environ, overrides=options)
    exposed = check_properties(settings)
    set_up_logging(settings.log.level, settings.log.format)
    for line in exposed:
        log.warning("%s", line)
    return settings


def clusters_named(settings: Settings, name: str | None) -> list[ClusterSettings]:
    """Return the configured cluster of that name, or all. Raises UsageError."""
    chosen = [cluster for cluster in settings.clusters if name in (None, cluster.name)]
    if not chosen:
        names = ", ".join(cluster.name for cluster in settings.clusters)
        raise click.UsageError(f"--cluster must be one of {names}, got {name!r}")
    return chosen


def job_settings(config: Path | None, history: str | None, master: str | None) -> Settings:
    """Load the settings of a command that connects to no broker. Raises SettingsError."""
    from exporter.settings.load import load_settings

    options = [("--history", "history.folder", history), ("--master", "rollup.master", master)]
    return load_settings(config, None, os.environ, overrides=options, with_clusters=False)


def check_properties(settings: Settings) -> list[str]:
    """Check each cluster's properties with librdkafka; return a line for each secret that is too widely readable.

    Raises SettingsError, also where a process that checks them ends.
    """
    from exporter.domain.ports import SourceError
    from exporter.factory.sources import connect

    sources = connect(settings)
    try:
        return list_exposed_secrets(settings, sources)
    except SourceError as error:
        raise SettingsError((f"the properties of a cluster could not be checked: {error.detail}",)) from None
    finally:
        for source in sources.values():
            source.close()


def print_any_text(encoding: str | None = None) -> None:
    """Escape what the locale of standard output lacks: names of groups and owners may hold any character."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding=encoding, errors="backslashreplace")


def warn_of_exposed(settings: Settings, sources: Mapping[str, RemoteClient]) -> None:
    """Log a line for each secret of a cluster that is too widely readable; a client that does not start costs them."""
    from exporter.domain.ports import SourceError

    try:
        for line in list_exposed_secrets(settings, sources):
            log.warning("%s", line)
    except SourceError as error:
        log.warning("could not check who may read the secrets of clusters: %s", error.detail)


def list_exposed_secrets(settings: Settings, sources: Mapping[str, RemoteClient]) -> list[str]:
    """Return a line for each secret of a cluster that is too widely readable. Raises SourceError."""
    return [
        f"cluster {cluster.name}: {line}"
        for cluster in settings.clusters
        for line in sources[cluster.name].client.list_exposed_secrets()
    ]


def narrow_topics(cluster: ClusterSettings, patterns: Sequence[str], *, internal: bool = False) -> ClusterSettings:
    """Return a cluster with the topics that match ``patterns`` alone, where there are any.

    ``internal`` lets internal topics in, as the settings of the cluster may do.
    """
    from exporter.settings.schema import TopicFilter

    topics = TopicFilter(include=tuple(patterns)) if patterns else cluster.topics
    internal = internal or cluster.topics.internal
    return cluster.model_copy(update={"topics": topics.model_copy(update={"internal": internal})})
