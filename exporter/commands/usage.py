"""Help texts, and commands that print them without reflowing lines."""

import inspect

import click

from exporter.domain.exit_codes import ExitCode

CONFIGURATION = """\
The smallest configuration file:
  clusters:
    - name: prod
      kafka:
        bootstrap.servers: host:9092

Any librdkafka property goes under `kafka`; ${NAME} takes it from the environment:
  security.protocol: SASL_SSL
  sasl.mechanism: SCRAM-SHA-512
  sasl.username: liveness
  sasl.password: ${KAFKA_PASSWORD}

Every setting outside of lists has a variable that overrides it; two underscores separate
section and name. The variable of a list holds all of it, as YAML:
  TOPIC_LIVENESS_POLL__INTERVAL=15s
  TOPIC_LIVENESS_WEB__LISTEN=127.0.0.1:9797
  TOPIC_LIVENESS_GROUPS__INCLUDE='[orders-.*, payments]'

`topic-liveness check-config` prints every setting with its value.
"""

_EXAMPLES = """\
Examples:
  topic-liveness audit --bootstrap-server localhost:9092   which topics are abandoned, now and without history
  topic-liveness once --bootstrap-server localhost:9092    one poll, metrics on standard output
  topic-liveness serve --config prod.yaml                  the exporter
  topic-liveness backfill --config prod.yaml               history from before the exporter ran
  topic-liveness rollup --config prod.yaml                 verdicts from history
  topic-liveness report --config prod.yaml                 the weekly report
  topic-liveness explain orders --config prod.yaml         why orders has its verdict
  topic-liveness doctor --config prod.yaml                 what is missing, and how to fix it
  topic-liveness offsets --time latest --config prod.yaml  offsets, now or at any time

`topic-liveness COMMAND --help` shows more; `serve --help` shows the configuration.

Completion with the Tab key, in ~/.bashrc (zsh, fish: zsh_source, fish_source):
  eval "$(_TOPIC_LIVENESS_COMPLETE=bash_source topic-liveness)"

"""

_CODES = "".join(f"  {code:<5}{code.meaning}\n" for code in ExitCode)

OVERVIEW = f"{_EXAMPLES}Exit codes of every command (serve ends with 0 at a signal):\n{_CODES}"


OFFSETS = """\
TIME is one of:
  latest           one past the newest record
  earliest         the first record that the broker still has
  max-timestamp    the record with the largest timestamp
  earliest-local   the first record on the broker's own disk (3.5) *
  latest-tiered    the last record in the remote tier (3.9) *
  a point in time  the first record, in offset order, at or after it:
                     2026-03-03T12:00:00Z or +01:00; without a zone it is UTC
                     2026-03-03       the start of that day, UTC
                     1772539200000    milliseconds since 1970
                     -2h              two hours ago; also s, m, d, w
  * with the extra: pip install '.[kafka-python]' in a checkout

latest, earliest, earliest-local and latest-tiered are positions, not records: they have
no timestamp. Wrong offsets of brokers 3.0 to 3.7 (KAFKA-16310) are corrected.

REASON, where offset or timestamp is missing or unusual:
  never-written, empty     no record was ever written, or all were deleted since
  no-record-since          all records are from before that time
  nothing-tiered           no record is in the remote tier
  hidden-records           there are later records, and the broker does not find the first of them by time
  future                   the timestamp lies a minute ahead or more
  no-timestamp             the records have none (format before 0.10)
  pending                  the newest record is not yet visible, or not known for certain
  idle-in-tier             all records are in the remote tier, and none of them has a timestamp
  no-leader, unauthorized, leader-unreachable, timed-out, ...: it could not be read

JSON: cluster, topic, partition, time, offset, timestamp (ISO 8601, UTC), timestamp_ms,
reason; null where there is none.
"""


DOCTOR = """\
Checks of this host: configuration, history folder and free space, expectations, web
port, and what Spark needs. Of each cluster: secret files, connection, each advertised
address, versions, rights, consumer groups.
Takes seconds, or about a minute where a broker does not answer.

Each finding says what it costs and how to fix it:
  ok        all is well
  note      worth knowing; nothing is lost
  warning   some data, or a secret, is lost or at risk
  error     a cluster, a broker or the history cannot be used

JSON: an array of cluster (null: this host), check, severity, what, costs, fix.
"""


class VerbatimHelp(click.Command):
    """A command whose help keeps its line breaks, so that examples can be copied."""

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the docstring."""
        _write(formatter, inspect.cleandoc(self.help or ""))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the text after the options."""
        if self.epilog is not None:
            _write(formatter, self.epilog)


class Commands(VerbatimHelp, click.Group):
    """Lists commands in order of use, not of the alphabet."""

    command_class = VerbatimHelp

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names in the order of the code."""
        return list(self.commands)


def _write(formatter: click.HelpFormatter, text: str) -> None:
    formatter.write_paragraph()
    formatter.write("".join(f"  {line}".rstrip() + "\n" for line in text.splitlines()))
