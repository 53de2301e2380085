"""The demo's folder, its stages and its end: nothing of others is touched, nothing of its own is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.demo.broker import java_properties
from tests.demo.folder import MARKER, DemoFolder
from tests.demo.interruption import Interrupted, interruptible
from tests.demo.jars import KAFKA_VERSION, DemoError, require_locked, resolve_kafka
from tests.demo.stages import Stage, environment


def claimed(path: Path) -> DemoFolder:
    """A folder that this process has claimed."""
    folder = DemoFolder(path)
    folder.claim()
    return folder


def test_a_jar_that_is_not_the_released_one_is_refused(tmp_path: Path) -> None:
    """A repository that serves another Kafka client is named, with the file, before anything of it runs."""
    (tmp_path / "kafka-clients-4.3.1.jar").write_bytes(b"another")
    with pytest.raises(DemoError, match=r"kafka-clients-4\.3\.1\.jar.*: not the file released with kafka-4\.3\.1"):
        require_locked("kafka-4.3.1", tmp_path, tmp_path)


@pytest.mark.parametrize(
    ("folders", "file"),
    [((), "cache"), (("cache/ivy.lock",), ""), (("cache",), f"cache/.kafka-{KAFKA_VERSION}.partial")],
    ids=["the cache", "its lock", "its staging"],
)
def test_a_cache_that_cannot_be_used_is_named(folders: Sequence[str], file: str, tmp_path: Path) -> None:
    """A file in the place of a folder, or the other way round, is told with the reason and the next step."""
    for folder in folders:
        (tmp_path / folder).mkdir(parents=True)
    if file:
        (tmp_path / file).touch()
    cache = tmp_path / "cache"
    with pytest.raises(DemoError, match=rf"^{cache} cannot be used .*; next step: .* TOPIC_LIVENESS_CACHE"):
        resolve_kafka(cache=cache, progress=print)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("/home/anna/data", "/home/anna/data"),
        ("/home/a\\b", "/home/a\\\\b"),
        ("/home/bj\u00f6rn/\u65e5", "/home/bj\\u00f6rn/\\u65e5"),
        ("\U0001d11e", "\\ud834\\udd1e"),
        ("two\nlines", "two\\u000alines"),
        (" first", "\\ first"),
    ],
)
def test_properties_are_written_as_java_reads_them(value: str, written: str) -> None:
    """It takes bytes for ISO-8859-1, a backslash for an escape, and drops spaces before a value."""
    assert java_properties({"node.id": "1", "log.dirs": value}) == f"node.id=1\nlog.dirs={written}\n"


def test_an_unfinished_demo_leaves_no_folder(tmp_path: Path) -> None:
    """Without `keep` the whole folder goes, and releasing twice is harmless."""
    folder = claimed(tmp_path / "demo")
    folder.config.write_text("x")
    folder.release()
    folder.release()
    assert not folder.path.exists()


def test_a_finished_demo_leaves_all_but_the_broker_data(tmp_path: Path) -> None:
    """After `keep` config, history and logs stay, the broker's log among them; its data goes."""
    folder = claimed(tmp_path / "demo")
    (folder.broker / "data").mkdir(parents=True)
    (folder.broker / "server.log").write_text("started")
    folder.config.write_text("x")
    folder.keep()
    folder.release()
    assert sorted(entry.name for entry in folder.path.iterdir()) == sorted([MARKER, "config.yaml", "logs"])
    assert (folder.logs / "broker.log").read_text() == "started"


def test_an_older_demo_is_replaced(tmp_path: Path) -> None:
    """A kept folder can be claimed again, and then holds nothing of the demo before."""
    folder = claimed(tmp_path / "demo")
    folder.config.write_text("old")
    folder.keep()
    folder.release()
    again = claimed(tmp_path / "demo")
    assert not again.config.exists()
    again.release()


def test_a_foreign_folder_is_refused_and_left_alone(tmp_path: Path) -> None:
    """A folder with files that no demo wrote is refused with a next step, and keeps them."""
    (tmp_path / "thesis.tex").write_text("years of work")
    folder = DemoFolder(tmp_path)
    with pytest.raises(DemoError, match=r"holds files that no demo wrote.*--folder DIR"):
        folder.claim()
    folder.release()
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_a_running_demo_is_refused_by_its_process_id(tmp_path: Path) -> None:
    """While one demo holds the folder a second is refused, is told by whom, and removes nothing."""
    first = claimed(tmp_path / "demo")
    first.config.write_text("mine")
    other = DemoFolder(tmp_path / "demo")
    with pytest.raises(DemoError, match=rf"runs in .* already \(process {os.getpid()}\)"):
        other.claim()
    other.release()
    assert first.config.read_text() == "mine"
    first.release()


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    """A path below a file is refused with the system's reason and the next step."""
    (tmp_path / "file").write_text("")
    with pytest.raises(DemoError, match=r"cannot be used by the demo: .*--folder DIR"):
        DemoFolder(tmp_path / "file" / "demo").claim()


def test_a_failing_command_shows_the_end_of_its_log(tmp_path: Path) -> None:
    """A command that fails raises with its name, exit code and last lines."""
    stage = Stage("serve", ["no-such-verb"], folder=tmp_path, log=tmp_path / "serve.log")
    stage.start()
    with pytest.raises(DemoError, match=r"(?s)serve failed with exit code \d+; the end of .*serve\.log:\n  \| .+"):
        stage.finish(60.0, meanwhile=print)
    stage.stop()


def test_a_stage_can_be_stopped_before_it_started(tmp_path: Path) -> None:
    """Undoing is registered before doing, so stopping what never started is harmless."""
    Stage("serve", [], folder=tmp_path, log=tmp_path / "serve.log").stop()


def test_the_users_own_settings_do_not_reach_the_demo() -> None:
    """TOPIC_LIVENESS_* is left out of the commands' environment, but for the cache; the rest stays."""
    given = {
        "TOPIC_LIVENESS_WEB__LISTEN": ":1",
        "TOPIC_LIVENESS_CACHE": "/cache",
        "PATH": "/bin",
        "PYTHONPATH": "/mine",
    }
    made = environment(given)
    assert "TOPIC_LIVENESS_WEB__LISTEN" not in made
    assert (made["TOPIC_LIVENESS_CACHE"], made["PATH"]) == ("/cache", "/bin")
    assert made["PYTHONPATH"].split(os.pathsep)[1:] == ["/mine"]


def test_the_users_own_jvm_options_are_kept() -> None:
    """A proxy named in JAVA_TOOL_OPTIONS still stands there in the commands' environment, before our own."""
    made = environment({"JAVA_TOOL_OPTIONS": "-Dhttps.proxyHost=proxy"})
    assert made["JAVA_TOOL_OPTIONS"].startswith("-Dhttps.proxyHost=proxy -XX:")


def test_only_the_first_signal_interrupts() -> None:
    """The first SIGTERM unwinds with 143; signals that arrive during the tidying up do not break into it."""
    tidied = []

    def interrupted_twice() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            os.kill(os.getpid(), signal.SIGINT)
            tidied.append("up")

    with pytest.raises(Interrupted) as caught, interruptible():
        interrupted_twice()
    assert tidied == ["up"]
    assert caught.value.exit_code == 143


def test_handlers_of_before_come_back() -> None:
    """After the demo Ctrl-C means again what it meant before."""
    before = signal.getsignal(signal.SIGINT)
    with interruptible():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


def test_missing_java_is_reported_with_the_next_step(tmp_path: Path) -> None:
    """Without Java the demo ends with 2 before it has made anything, and says what to install."""
    run = "import sys; from tests.demo.run import demo; sys.exit(demo(True, None))"
    environ = {"PATH": str(tmp_path), "HOME": str(tmp_path), "PYTHONPATH": environment({})["PYTHONPATH"]}
    done = subprocess.run(
        [sys.executable, "-c", run], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert "Error: no java on the PATH; next step: install a Java 17" in done.stderr
    assert list(tmp_path.iterdir()) == []
