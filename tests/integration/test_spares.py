"""The first client processes of `serve` are forked from it: what one of them does harms neither it nor the other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench.fake_cluster import FakeCluster
from tests.integration.serving import Exporter, until


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    """Three brokers, 20 partitions, and groups, which the second process reads."""
    with FakeCluster(topics=2, partitions=10, groups=2, group_partitions=3) as cluster:
        yield cluster


def run(program: str, *arguments: str) -> list[str]:
    """Run a program in which two spares were forked at first; return what it prints."""
    begin = "from exporter.kafka.spares import fork_spares, spares\nfork_spares(2)\n"
    done = subprocess.run(
        [sys.executable, "-c", begin + textwrap.dedent(program), *arguments],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout.splitlines()


def alive(pid: int) -> bool:
    """Whether it runs, or has ended and nobody asked how."""
    return Path(f"/proc/{pid}").exists()


def test_a_spare_holds_its_connection_and_nothing_of_another() -> None:
    """A copy of another's connection would keep that one running after the exporter was killed."""
    [printed] = run("""
        import os, time
        from exporter.kafka.messages import Begin, Call
        from multiprocessing.connection import Connection
        held = []
        for spare in spares:
            ours = Connection(spare.socket.detach())
            ours.send(Begin(20)), ours.send(Call(0, "nobody", "", (), 20))
            ours.recv()  # it has begun
            names = os.listdir(f"/proc/{spare.pid}/fd")
            held.append(sum(os.readlink(f"/proc/{spare.pid}/fd/{one}").startswith("socket:") for one in names))
            held.append(len(names))
        print(*held)
    """)
    assert printed.split() == ["1", "4", "1", "4"], "its socket, and the three standard files"


def test_the_exporter_loads_no_librdkafka_for_them() -> None:
    """They load it after the fork."""
    assert run("import sys; print('confluent_kafka' in sys.modules, len(spares))") == ["False 2"]


def test_a_process_with_threads_forks_none() -> None:
    """A lock that another thread holds would stay held."""
    printed = run("""
        import threading
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        fork_spares(2)
        print(len(spares))
    """)
    assert printed == ["2"], "those from before"


def test_unused_spares_leave_no_process_and_no_file() -> None:
    """Also one that was killed before."""
    printed = run("""
        import os, signal
        from exporter.kafka import ClientProcesses
        pids = [spare.pid for spare in spares]
        files = len(os.listdir("/proc/self/fd"))
        os.kill(pids[0], signal.SIGKILL)
        ClientProcesses(spares).close()
        print(files - len(os.listdir("/proc/self/fd")), *(os.path.exists(f"/proc/{pid}") for pid in pids))
    """)
    assert printed == ["4 False False"], "a socket and a pipe of each"


def test_a_spare_that_aborted_costs_one_call(cluster: FakeCluster) -> None:
    """The client that takes it says how it ended, the next call starts a process, and the other spare is unharmed."""
    printed = run(
        """
        import os, signal, sys, time
        import numpy as np
        from exporter.domain.ports import SourceError
        from exporter.kafka import ClientProcesses, RemotePollSource
        os.kill(spares[0].pid, signal.SIGABRT)
        pids = [spare.pid for spare in spares]
        processes = ClientProcesses(spares)
        asking = {"properties": {"bootstrap.servers": sys.argv[1]}, "request_timeout": 10.0, "chunk_size": 250}
        def source(cluster):
            return RemotePollSource(processes.polls(cluster), "polls", patience=60, calls_in_flight=4, **asking)
        first, second = source("first"), source("second")
        try:
            first.metadata(fresh=False)
        except SourceError as error:
            print(error.detail)
        print(len(second.metadata(fresh=False).membership.layout), processes.polls("second").pid == pids[1])
        time.sleep(1.5)
        print(len(first.metadata(fresh=False).membership.layout), processes.polls("first").pid in pids)
        processes.close()
        print(*(os.path.exists(f"/proc/{pid}") for pid in pids))
        """,
        cluster.bootstrap,
    )
    assert "ended by SIGABRT" in printed[0]
    assert printed[1:] == ["20 True", "20 False", "False False"]


@pytest.fixture
def exporter(cluster: FakeCluster, tmp_path: Path) -> Iterator[Exporter]:
    """One that has polled, and swept over groups."""
    with Exporter(tmp_path, cluster.bootstrap, TOPIC_LIVENESS_GROUPS__INTERVAL="5s") as exporter:
        until(lambda: _swept(exporter), "a sweep")
        yield exporter


def _swept(exporter: Exporter) -> bool:
    return any(one.name.startswith("kafka_consumergroup") for one in exporter.samples())


def forked(exporter: Exporter) -> list[int]:
    """Return its client processes, which are both forked: they have its own command line."""
    found = exporter.clients()
    own = Path(f"/proc/{exporter.process.pid}/cmdline").read_text()
    assert [Path(f"/proc/{pid}/cmdline").read_text() for pid in found] == [own, own]
    return found


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_behind(exporter: Exporter, how: signal.Signals) -> None:
    """However `serve` ends, its clients end."""
    clients = forked(exporter)
    exporter.process.send_signal(how)
    assert exporter.process.wait(60) == (-9 if how == signal.SIGKILL else 0)
    until(lambda: not any(map(alive, clients)), "they ended", 20)


def test_a_killed_client_is_replaced(exporter: Exporter) -> None:
    """By a process that is no fork, and the other one goes on."""
    before = forked(exporter)
    polls = exporter.value("topic_liveness_polls_total", outcome="ok") or 0
    os.kill(before[0], signal.SIGKILL)
    until(lambda: (exporter.value("topic_liveness_polls_total", outcome="ok") or 0) > polls + 1, "polls go on")
    after = exporter.clients()
    assert len(after) == 2 and before[1] in after and before[0] not in after
    assert exporter.end() == 0


def test_settings_that_are_refused_leave_nothing_behind(tmp_path: Path) -> None:
    """The spares were forked before they were read."""
    config = tmp_path / "bad.yaml"
    config.write_text("clusters: []\n")
    # A session of its own each: they are found by their command line.
    done = subprocess.run(
        [sys.executable, "-m", "exporter", "serve", "--config", config], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and "clusters" in done.stderr
    until(lambda: not _running_with(str(config)), "nothing runs", 20)


def _running_with(argument: str) -> list[str]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            found += [folder.name] if argument in (folder / "cmdline").read_text() else []
        except OSError:
            continue
    return found
