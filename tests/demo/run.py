"""Runs `make demo`: a real broker, the whole product on it, and its verdicts beside the truth."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import yaml

from exporter.domain.exit_codes import ExitCode
from exporter.domain.verdicts import Verdict
from exporter.history.published import Expectations
from exporter.java import JavaError, java
from tests.demo.broker import KAFKA_VERSION, Broker, free_port, resolve_kafka
from tests.demo.comparison import CLUSTER, ExposedVerdicts, Key, Row, compare, reported_dead
from tests.demo.folder import DEFAULT_FOLDER, DemoFolder
from tests.demo.interruption import Interrupted, interruptible
from tests.demo.jars import DemoError
from tests.demo.scenario import OWNERS, TOPICS, partitions
from tests.demo.screen import Screen
from tests.demo.stages import CHECK_SECONDS, Stage
from tests.demo.traffic import LiveTraffic, commit_groups, make_topics, write_history

EXPORTER_TIMEOUT = 60.0
BACKFILL_TIMEOUT = 180.0
SPARK_TIMEOUT = 900.0
"""The first rollup on a machine also downloads the jars of Delta Lake."""
AGREEMENT_TIMEOUT = 90.0
POLL_INTERVAL = "5s"
HISTORY_WINDOW = "15s"

_MODULES = {"pyspark": "pyspark", "delta": "delta-spark", "jinja2": "jinja2"}


def demo(exit_: bool, folder: Path | None) -> int:
    """Run the demo in ``folder`` (None: ``topic-liveness-demo`` in the working directory); return an exit code.

    Serves until Ctrl-C unless ``exit_``. A signal before the verdicts are there gives 128 + its number. Must run in the
    main thread. Every process is stopped at the end. The folder with report, history and logs stays, unless the demo
    was interrupted.
    """
    screen = Screen()
    place = DemoFolder(folder or DEFAULT_FOLDER)
    began = False
    try:
        _check_prerequisites()
        with interruptible(), ExitStack() as cleanup:
            cleanup.callback(place.release)
            place.claim()
            began = True
            code = _Demo(screen, place, cleanup).run(serve_on=not exit_)
    except Interrupted as interrupted:
        print(f"interrupted by {interrupted}; the demo's files are removed", file=sys.stderr)
        return interrupted.exit_code
    except (DemoError, JavaError) as problem:
        print(f"Error: {problem}", file=sys.stderr)
        return ExitCode.FOUND if began else ExitCode.NOT_STARTED
    screen.say(f"Broker and exporter are stopped. Report, history, config and logs are in {place.path}")
    return code


@dataclass(slots=True)
class _Demo:
    """The stages in order. ``cleanup`` undoes them in reverse; a cleanup is registered before its stage begins."""

    screen: Screen
    place: DemoFolder
    cleanup: ExitStack

    def run(self, *, serve_on: bool) -> int:
        with self.screen.stage(f"resolving Kafka {KAFKA_VERSION}") as progress:
            jars = resolve_kafka(cache=_cache(os.environ), progress=progress)
        try:
            return self._run(jars, serve_on=serve_on)
        except DemoError:
            self.place.keep()
            raise
        except Interrupted:
            self.screen.say("stopping everything ...")
            raise

    def _run(self, jars: Path, *, serve_on: bool) -> int:
        broker = Broker(self.place.broker, jars=jars)
        self.cleanup.callback(broker.stop)
        with self.screen.stage("starting the broker"):
            broker.start()
        with self.screen.stage("writing four weeks of records") as progress:
            make_topics(broker.bootstrap)
            started = time.time()
            records = write_history(broker.bootstrap, started, progress=progress)
        commit_groups(broker.bootstrap)
        self.screen.say(f"  {records} records in {sum(1 for _ in partitions())} partitions on {broker.bootstrap}")
        trickle = LiveTraffic(broker.bootstrap, started, started, now=time.time)
        self.cleanup.callback(trickle.stop)
        trickle.start()
        address = f"127.0.0.1:{free_port()}"
        _write_config(self.place, broker.bootstrap, address)

        service = self._stage("exporter", "serve")
        self.cleanup.callback(service.stop)

        def check(_: str = "") -> None:
            service.check()
            trickle.check()

        with self.screen.stage("starting the exporter"):
            service.start()
            # Until the copy with old timestamps advances, nobody knows that it lives.
            _wait_for("the first polls", EXPORTER_TIMEOUT, check, lambda: _has_seen_the_living(address))
        self._command("backfill", BACKFILL_TIMEOUT, check)
        self._command("rollup", SPARK_TIMEOUT, check, "--report")
        rows = self._agreement(address, check)
        self.place.keep()
        self._conclude(rows, address, broker.bootstrap)
        if serve_on:
            self._serve_on(check)
        return ExitCode.DONE if all(row.fits for row in rows) else ExitCode.FOUND

    def _stage(self, name: str, verb: str, *options: str) -> Stage:
        arguments = [verb, "--config", str(self.place.config), *options]
        return Stage(name, arguments, folder=self.place.path, log=self.place.logs / f"{name}.log")

    def _command(self, verb: str, timeout: float, check: Callable[[], None], *options: str) -> None:
        stage = self._stage(verb, verb, *options)
        self.cleanup.callback(stage.stop)
        with self.screen.stage(" ".join([verb, *options])) as progress:

            def meanwhile(last_line: str) -> None:
                progress(last_line)
                check()

            stage.start()
            stage.finish(timeout, meanwhile=meanwhile)

    def _agreement(self, address: str, check: Callable[[], None]) -> list[Row]:
        """Wait until the exporter uses the published expectations and agrees with the truth, or time is up."""
        published = _published(self.place.history)
        dead = reported_dead(_report(self.place.history, "json"))
        rows: list[Row] = []

        def agrees() -> bool:
            shown = ExposedVerdicts.at(address)
            if shown.expectations_as_of is None:
                return False
            rows[:] = compare(published, shown, dead)
            return all(row.fits for row in rows)

        with self.screen.stage("the exporter reads the verdicts"):
            try:
                _wait_for("the exporter to read the published expectations", AGREEMENT_TIMEOUT, check, agrees)
            except _TooLateError:
                if not rows:
                    raise
        return rows

    def _conclude(self, rows: list[Row], address: str, bootstrap: str) -> None:
        say = self.screen.say
        self.screen.comparison(rows)
        say()
        for name, where in {
            "status page": f"http://{address}/",
            "metrics": f"http://{address}/metrics",
            "broker": bootstrap,
            "report": str(_report(self.place.history, "html")),
            "": str(_report(self.place.history, "md")),
            " ": str(_report(self.place.history, "json")),
            "config": str(self.place.config),
            "history": str(self.place.history),
            "logs": str(self.place.logs),
        }.items():
            say(f"{name:<12} {where}")
        say()
        took = self.screen.timings
        say("took " + ", ".join(f"{name} {seconds:.0f} s" for name, seconds in took.items()))
        say(f"in all {sum(took.values()):.0f} s")

    def _serve_on(self, check: Callable[[], None]) -> None:
        self.screen.say()
        self.screen.say("The broker, the live producers and the exporter run until Ctrl-C.")
        try:
            while True:
                time.sleep(CHECK_SECONDS)
                check()
        except Interrupted:
            return


def _has_seen_the_living(address: str) -> bool:
    """Return whether the exporter polls, and calls no topic retired that lives."""
    shown = ExposedVerdicts.at(address)
    alive = {topic.name for topic in TOPICS if Verdict.RETIRED not in topic.truth}
    retired = {topic for (topic, _), verdict in (shown.verdicts or {}).items() if verdict is Verdict.RETIRED}
    return shown.up and not alive & retired


class _TooLateError(DemoError):
    """A condition was not met in time."""


def _wait_for(what: str, timeout: float, check: Callable[[], None], condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        check()
        if time.monotonic() > deadline:
            raise _TooLateError(f"waited {timeout:.0f} s for {what}; next step: see the logs folder of the demo")
        time.sleep(CHECK_SECONDS)


def _published(history: Path) -> Mapping[Key, Verdict]:
    expectations = Expectations(history)
    expectations.refresh()
    if expectations.published is None:
        raise DemoError(
            f"the rollup published nothing in {expectations.folder}: {expectations.problem or 'no current.json'}"
        )
    rows = expectations.published.rows.values()
    return {(row.topic, row.partition): Verdict(row.verdict) for row in rows if row.cluster == CLUSTER}


def _report(history: Path, form: str) -> Path:
    found = sorted((history / "published" / "reports").glob(f"*/liveness.{form}"))
    if not found:
        raise DemoError(f"the report wrote no liveness.{form} in {history / 'published' / 'reports'}; see its log")
    return found[-1]


def _write_config(place: DemoFolder, bootstrap: str, address: str) -> None:
    config = {
        "clusters": [{"name": CLUSTER, "kafka": {"bootstrap.servers": bootstrap}}],
        "poll": {"interval": POLL_INTERVAL},
        "history": {"folder": str(place.history), "window": HISTORY_WINDOW},
        "owners": [{"topics": topics, "owner": owner} for topics, owner in OWNERS.items()],
        "web": {"listen": address},
    }
    comment = "# Written by `make demo`; each of its commands gets this file as --config.\n"
    place.config.write_text(comment + yaml.safe_dump(config, sort_keys=False))


def _check_prerequisites() -> None:
    java()
    missing = [package for module, package in _MODULES.items() if importlib.util.find_spec(module) is None]
    if missing:
        raise DemoError(f"{', '.join(missing)} not installed; next step: pip install '.[spark]' in a checkout")


def _cache(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("TOPIC_LIVENESS_CACHE") or Path.home() / ".cache" / "topic-liveness")
