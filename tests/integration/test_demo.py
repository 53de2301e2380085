"""The demo end to end, as a person runs it: its verdicts are true, and nothing of it is left behind."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.grafana import PANELS, TARGETS
from tests.prometheus import Ask, scraping
from tests.waiting import until

ROOT = Path(__file__).parents[2]
WHOLE_DEMO_SECONDS = 1200
EMPTY_IN_THE_DEMO = (
    "replication: ",
    "exporter: False alarms: promised",
    "exporter: Partitions not read, by reason",
    "groups: Records lost before they were read",
    "groups: No time lag, by reason",
    "groups: Groups not read, by reason",
    "overview: Bytes on disk by verdict",
    "overview: Dead topics by owner",
    "overview: Largest dead topics",
    "overview: Living topics with dead partitions",
    "overview: Topics that were suspect, held or dead",
    "topic: Partitions that were suspect, held or dead",
)
"""Panels of settings that the demo has not, and of what goes wrong nowhere in it.

What is dead in the demo died before its first poll: it is retired.
"""


def processes_about(folder: Path) -> list[str]:
    """Command lines of the running processes that name the folder or work in it; each part of the demo does.

    Spark's JVM does not name it: it works in it.
    """
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            place = Path(str((entry / "cwd").readlink()).removesuffix(" (deleted)"))
        except OSError:
            continue
        if (str(folder) in line or place.is_relative_to(folder)) and int(entry.name) != os.getpid():
            found.append(line)
    return found


def listens(address: str) -> bool:
    host, port = address.rsplit(":", 1)
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


@contextmanager
def demo_until(folder: Path, line: str) -> Iterator[subprocess.Popen[str]]:
    """A demo that has printed ``line``; killed at the end should it still run."""
    command = [sys.executable, "-m", "tests.demo", "--folder", str(folder)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as demo:
        stuck = threading.Timer(WHOLE_DEMO_SECONDS, demo.kill)
        stuck.start()
        try:
            assert demo.stdout is not None
            lines = []
            for text in demo.stdout:
                lines.append(text)
                if text.startswith(line):
                    break
            else:
                pytest.fail(f"the demo ended before {line!r}: {''.join(lines)}")
            yield demo
        finally:
            stuck.cancel()
            demo.kill()


def empty_panels(ask: Ask) -> dict[str, str]:
    """Panels whose queries found nothing at the last good scrape, with the words that they show in place of it."""
    [up] = ask("query", query="max_over_time(timestamp(up == 1)[30m:1s])")["result"]
    filled = {
        (query.dashboard, query.title)
        for query in TARGETS
        if ask("query", query=query.as_sent(), time=up["value"][1])["result"]
    }
    return {
        f"{name}: {panel['title']}": panel["fieldConfig"]["defaults"]["noValue"]
        for name, panel in PANELS
        if (name, panel["title"]) not in filled
    }


@pytest.mark.timeout(WHOLE_DEMO_SECONDS + 60)
def test_every_verdict_fits_the_truth_and_nothing_is_left(tmp_path: Path) -> None:
    """A demo says PASS, ends with 0 at Ctrl-C, leaves report, config, history and logs, and no process.

    A Prometheus that scrapes it meanwhile fills every panel of the dashboards, but those that say what they need.
    """
    folder = tmp_path / "demo"
    with demo_until(folder, "backfill ...") as demo:
        web = yaml.safe_load((folder / "config.yaml").read_text())["web"]["listen"]
        with scraping(web, tmp_path) as ask:
            assert demo.stdout is not None
            output = ""
            for line in demo.stdout:
                output += line
                if line.startswith("The broker, the live producers and the exporter run until Ctrl-C"):
                    break
            # A busy machine may scrape the verdicts late.
            until(
                lambda: all(panel.startswith(EMPTY_IN_THE_DEMO) for panel in empty_panels(ask)),
                "every panel that should be is filled",
            )
            empty = empty_panels(ask)
        demo.send_signal(signal.SIGINT)
        assert demo.wait() == 0, output
    assert re.search(r"^PASS: the verdicts of \d+ topics and \d+ partitions are right$", output, re.MULTILINE), output
    assert not {"unknown", "not known"} & set(empty.values())
    assert "orders/7" in output
    config = yaml.safe_load((folder / "config.yaml").read_text())
    bootstrap, web = config["clusters"][0]["kafka"]["bootstrap.servers"], config["web"]["listen"]
    for where in (f"http://{web}/metrics", bootstrap, str(folder / "history")):
        assert where in output
    for form in ("html", "md", "json"):
        (report,) = (folder / "history" / "published" / "reports").glob(f"*/liveness.{form}")
        assert str(report) in output
        assert "payments-legacy" in report.read_text()
    assert json.loads((folder / "history" / "published" / "current.json").read_text())["rows"] > 0
    assert sorted(log.name for log in (folder / "logs").iterdir()) == [
        "backfill.log",
        "broker.log",
        "rollup.log",
        "serve.log",
    ]
    assert not (folder / "kafka").exists()
    # The JVM of a job ends by itself after it, which takes seconds on a busy machine.
    until(lambda: processes_about(folder) == [], "no process is left")
    assert not listens(bootstrap) and not listens(web)
