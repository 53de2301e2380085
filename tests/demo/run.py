"""Runs `make demo`: a real broker, the whole product on it, and its verdicts beside the truth."""

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import yaml
from confluent_kafka import KafkaException

from exporter.domain.exit_codes import ExitCode
from exporter.domain.verdicts import Verdict
from exporter.java import JavaError
from tests.demo.broker import KAFKA_VERSION, Broker, free_port, resolve_kafka
from tests.demo.comparison import CLUSTER, ExposedVerdicts, Row, as_lines, compare, reported_dead
from tests.demo.jars import DemoError
from tests.demo.lifeline import Lifeline
from tests.demo.scenario import OWNERS, TOPICS, partitions
from tests.demo.traffic import LiveTraffic, commit_groups, make_topics, write_history
from tests.judging import read_published, rows_of
from tests.programs import ROOT, cache_folder

DEFAULT_FOLDER = Path("topic-liveness-demo")
MARKER = ".topic-liveness-demo"
"""The file that marks the folder of a demo."""
EXPORTER_TIMEOUT = 60.0
BACKFILL_TIMEOUT = 180.0
SPARK_TIMEOUT = 900.0
"""The first rollup on a machine also downloads the jars of Delta Lake."""
AGREEMENT_TIMEOUT = 90.0
CHECK_SECONDS = 0.2
STOP_SECONDS = 15.0
"""How long a command may take for its cleanup after SIGTERM."""
TAIL_LINES = 15

_SHORT_LIVED_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""The first compiler tier only: on the demo's few records a rollup costs two thirds of the CPU."""


def demo(exit_: bool, folder: Path | None) -> int:
    """Run the demo in ``folder`` (None: ``topic-liveness-demo`` in the working directory); return an exit code.

    Serves until Ctrl-C unless ``exit_``. A signal before the verdicts are there gives 130. Every process is stopped at
    the end. The folder with report, history and logs stays.
    """
    place = DemoFolder(folder or DEFAULT_FOLDER)
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.default_int_handler)
    try:
        place.claim()
        with ExitStack() as cleanup:
            cleanup.callback(place.tidy)
            code = _Demo(place, cleanup).run(serve_on=not exit_)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except (DemoError, JavaError, KafkaException) as problem:
        print(f"Error: {problem}", file=sys.stderr)
        return ExitCode.FOUND
    print(f"Broker and exporter are stopped. Report, history, config and logs are in {place.path}")
    return code


def _environment() -> dict[str, str]:
    """Return the environment for the demo's commands, with a JVM for a short run.

    Settings of the user's own exporter are removed: they would override the demo's.
    """
    ours = {name: value for name, value in os.environ.items() if not name.startswith("TOPIC_LIVENESS_")}
    return ours | {
        "TOPIC_LIVENESS_CACHE": str(cache_folder()),
        "PYTHONPATH": str(ROOT),
        "JAVA_TOOL_OPTIONS": f"{os.environ.get('JAVA_TOOL_OPTIONS', '')} {_SHORT_LIVED_JVM}".strip(),
    }


class DemoFolder:
    """The folder of a demo, never one of another program. Files of an earlier demo are replaced."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.config = self.path / "config.yaml"
        self.history = self.path / "history"
        self.logs = self.path / "logs"
        self.broker = self.path / "kafka"

    def claim(self) -> None:
        """Create or empty the folder. Raises DemoError where it holds what no demo wrote."""
        if self.path.is_dir() and any(self.path.iterdir()) and not (self.path / MARKER).exists():
            raise DemoError(
                f"{self.path} holds files that no demo wrote, and a demo deletes the files in its folder; "
                "next step: name another folder with --folder DIR"
            )
        shutil.rmtree(self.path, ignore_errors=True)
        self.logs.mkdir(parents=True)
        (self.path / MARKER).touch()

    def tidy(self) -> None:
        """Remove the broker's data, but for its log, which goes to the other logs."""
        if (log := self.broker / "server.log").exists():
            shutil.move(log, self.logs / "broker.log")
        shutil.rmtree(self.broker, ignore_errors=True)


class Command:
    """A command of the product as a process, with the demo's configuration; its output goes to ``log``."""

    def __init__(self, place: DemoFolder, verb: str, *options: str) -> None:
        self._verb, self.log = verb, place.logs / f"{verb}.log"
        command = [sys.executable, "-P", "-m", "exporter", verb, "--config", str(place.config), *options]
        self._process = Lifeline(command, output=self.log, cwd=place.path, env=_environment())

    def stop(self) -> None:
        """Send SIGTERM, and SIGKILL after STOP_SECONDS."""
        self._process.stop(STOP_SECONDS)

    def check(self) -> None:
        """Raise DemoError with the last lines of the log where a command that should run has ended."""
        if (code := self._process.poll()) is not None:
            raise DemoError(self._failure(f"ended with exit code {code}"))

    def finish(self, timeout: float, check: Callable[[], None]) -> None:
        """Wait until the command succeeds. Raises DemoError where it does not, and any error of ``check``."""
        deadline = time.monotonic() + timeout
        while (code := self._process.poll()) is None:
            if time.monotonic() > deadline:
                raise DemoError(self._failure(f"did not end within {timeout:.0f} s"))
            time.sleep(CHECK_SECONDS)
            check()
        if code != 0:
            raise DemoError(self._failure(f"failed with exit code {code}"))

    def _failure(self, what: str) -> str:
        lines = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()][-TAIL_LINES:]
        return "\n".join([f"{self._verb} {what}; the end of {self.log}:", *(f"  | {line}" for line in lines)])


class _Demo:
    """The stages in order; ``cleanup`` undoes them in reverse."""

    def __init__(self, place: DemoFolder, cleanup: ExitStack) -> None:
        self._place, self._cleanup = place, cleanup

    def run(self, *, serve_on: bool) -> int:
        with self._stage(f"resolving Kafka {KAFKA_VERSION}"):
            broker = Broker(self._place.broker, jars=resolve_kafka(cache=cache_folder(), progress=_say))
        self._cleanup.callback(broker.stop)
        with self._stage("starting the broker"):
            broker.start()
        with self._stage("writing four weeks of records"):
            make_topics(broker.bootstrap)
            started = time.time()
            records = write_history(broker.bootstrap, started)
            commit_groups(broker.bootstrap)
        _say(f"  {records} records in {sum(1 for _ in partitions())} partitions on {broker.bootstrap}")
        trickle = LiveTraffic(broker.bootstrap, started)
        self._cleanup.callback(trickle.stop)
        address = f"127.0.0.1:{free_port()}"
        _write_config(self._place, broker.bootstrap, address)
        service = self._started("serve")

        def check() -> None:
            service.check()
            trickle.check()

        with self._stage("starting the exporter"):
            # Until the copy with old timestamps advances, nobody knows that it lives.
            _wait_for("the first polls", EXPORTER_TIMEOUT, check, lambda: _has_seen_the_living(address))
        with self._stage("backfill"):
            self._started("backfill").finish(BACKFILL_TIMEOUT, check)
        with self._stage("rollup --report"):
            self._started("rollup", "--report").finish(SPARK_TIMEOUT, check)
        rows = self._agreement(address, check)
        self._conclude(rows, address, broker.bootstrap)
        if serve_on:
            _say("\nThe broker, the live producers and the exporter run until Ctrl-C.")
            with suppress(KeyboardInterrupt):
                while True:
                    time.sleep(CHECK_SECONDS)
                    check()
        return ExitCode.DONE if all(row.fits for row in rows) else ExitCode.FOUND

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        begun = time.monotonic()
        _say(f"{name} ...")
        yield
        _say(f"{name}: {time.monotonic() - begun:.1f} s")

    def _started(self, verb: str, *options: str) -> Command:
        command = Command(self._place, verb, *options)
        self._cleanup.callback(command.stop)
        return command

    def _agreement(self, address: str, check: Callable[[], None]) -> list[Row]:
        """Wait until the exporter uses the published expectations and agrees with the truth, or time is up."""
        rows_published = rows_of(read_published(self._place.history).rows)
        published = {(row.topic, row.partition): Verdict(row.verdict) for row in rows_published}
        dead = reported_dead(_report(self._place.history, "json"))
        rows: list[Row] = []

        def agrees() -> bool:
            shown = ExposedVerdicts.at(address)
            if shown.expectations_as_of is not None:
                rows[:] = compare(published, shown, dead)
            return bool(rows) and all(row.fits for row in rows)

        with self._stage("the exporter reads the verdicts"):
            try:
                _wait_for("the exporter to read the published expectations", AGREEMENT_TIMEOUT, check, agrees)
            except DemoError:
                if not rows:
                    raise
        return rows

    def _conclude(self, rows: list[Row], address: str, bootstrap: str) -> None:
        _say("\n" + as_lines(rows) + "\n")
        place = self._place
        for name, where in {
            "status page": f"http://{address}/",
            "metrics": f"http://{address}/metrics",
            "broker": bootstrap,
            "report": _report(place.history, "html"),
            "": _report(place.history, "md"),
            " ": _report(place.history, "json"),
            "config": place.config,
            "history": place.history,
            "logs": place.logs,
        }.items():
            _say(f"{name:<12} {where}")


def _say(text: str) -> None:
    print(text, flush=True)


def _has_seen_the_living(address: str) -> bool:
    """Return whether the exporter polls, and calls no topic retired that lives."""
    shown = ExposedVerdicts.at(address)
    alive = {topic.name for topic in TOPICS if Verdict.RETIRED not in topic.truth}
    retired = {topic for (topic, _), verdict in (shown.verdicts or {}).items() if verdict is Verdict.RETIRED}
    return shown.up and not alive & retired


def _wait_for(what: str, timeout: float, check: Callable[[], None], condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        check()
        if time.monotonic() > deadline:
            raise DemoError(f"waited {timeout:.0f} s for {what}; next step: see the logs folder of the demo")
        time.sleep(CHECK_SECONDS)


def _report(history: Path, form: str) -> Path:
    return max((history / "published" / "reports").glob(f"*/liveness.{form}"))


def _write_config(place: DemoFolder, bootstrap: str, address: str) -> None:
    config = {
        "clusters": [{"name": CLUSTER, "kafka": {"bootstrap.servers": bootstrap}}],
        "poll": {"interval": "5s"},
        "history": {"folder": str(place.history), "window": "15s"},
        "owners": [{"topics": topics, "owner": owner} for topics, owner in OWNERS.items()],
        "web": {"listen": address},
    }
    comment = "# Written by `make demo`; each of its commands gets this file as --config.\n"
    place.config.write_text(comment + yaml.safe_dump(config, sort_keys=False))
