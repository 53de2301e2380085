"""The process with the Kafka clients of a cluster: its end harms neither the exporter nor another cluster."""

import os
import re
import resource
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from exporter.background_call import call_in_thread
from exporter.clock import SystemClock
from exporter.collectors.consumer_groups import GroupWatch
from exporter.collectors.poller import Poller
from exporter.domain.polls.layout import Layout
from exporter.domain.polls.metadata import Membership
from exporter.domain.polls.readings import PollFailure, Reason
from exporter.domain.polls.table import Snapshot
from exporter.domain.ports import SourceError
from exporter.kafka.process import OFFSETS, ClientProcess, RemoteClient, Restart
from tests.fake_cluster import FakeCluster
from tests.integration.test_bad_answers import well
from tests.scripted import ScriptedBroker
from tests.waiting import until

NOBODY = "127.0.0.1:9"
"""An address at which nothing listens."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    """Three brokers, two topics of ten partitions, and two groups."""
    with FakeCluster(topics=2, partitions=10, groups=2, group_partitions=3) as cluster:
        yield cluster


class Client:
    """A process that polls, and why it was replaced."""

    def __init__(self, bootstrap: str, *, limit: float = 30.0) -> None:
        self.restarts: list[Restart] = []
        self.process = ClientProcess("east")
        self.process.on_restart = self.restarts.append
        self.source = self.add(bootstrap, limit)
        self.failures: list[PollFailure] = []
        self.poller = Poller("east", self.source, [self], SystemClock(), metadata_seconds=60.0)

    def add(
        self, bootstrap: str, limit: float = 30.0, properties: Mapping[str, str | Path] | None = None
    ) -> RemoteClient:
        return RemoteClient(
            self.process,
            OFFSETS,
            limit=limit,
            properties={"bootstrap.servers": bootstrap, **(properties or {})},
            # Nothing listens at NOBODY, which is known at once; a real broker may be slow on a busy machine.
            request_timeout=1.0 if bootstrap == NOBODY else 10.0,
        )

    def accept(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    def take_failure(self, failure: PollFailure) -> None:
        self.failures.append(failure)

    def poll(self) -> int:
        """Return how many partitions a poll has read, 0 where it failed."""
        outcome = self.poller.poll()
        return int(np.count_nonzero(outcome.table.read)) if isinstance(outcome, Snapshot) else 0

    def send(self, number: int) -> int:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)
        return self.process.pid


@pytest.fixture
def client(cluster: FakeCluster) -> Iterator[Client]:
    client = Client(cluster.bootstrap)
    assert client.poll() == 20
    yield client
    client.process.close()


def test_one_that_ends_in_a_poll_costs_nothing(client: Client, logged_warnings: Callable[[], list[str]]) -> None:
    threading.Timer(0.5, client.send, [signal.SIGABRT]).start()
    client.send(signal.SIGSTOP)
    threading.Timer(1.0, lambda: os.kill(pid, signal.SIGCONT)).start()
    pid = client.process.pid or 0
    assert client.poll() == 20
    assert (client.failures, client.restarts) == ([], [Restart.ENDED])
    [line] = [line for line in logged_warnings() if "the Kafka client" in line]
    assert "was ended by signal 6 (Aborted); a new one starts" in line


def test_a_crash_of_librdkafka_is_survived(logged_warnings: Callable[[], list[str]]) -> None:
    """It ends its process (2.16.1) where an answer lacks a partition. The next poll that is answered is good."""
    with ScriptedBroker({"t": 3}, well) as broker:
        client = Client(broker.bootstrap)
        assert client.poll() == 3
        broker.answering = lambda target, keys: well(target, keys)[:2]
        assert client.poll() == 0
        assert {failure.reason for failure in client.failures} == {Reason.CLIENT_FAILED}
        broker.answering = well
        until(lambda: client.poll() == 3, "a poll is good again")
        assert set(client.restarts) == {Restart.ENDED}
        assert [line for line in logged_warnings() if "was ended by signal" in line]
        client.process.close()


def test_one_that_hangs_is_ended(cluster: FakeCluster) -> None:
    """Past the longest that a call may take, also where it does not fit into the socket; the next poll is good.

    A call beside it that had more time is made again.
    """
    client = Client(cluster.bootstrap, limit=1.0)
    client.poll()
    beside = client.add(cluster.bootstrap)
    beside.metadata()
    pid = client.send(signal.SIGSTOP)
    again = call_in_thread(beside.metadata, "beside")
    layout = Layout(["t"], [1_000_000], np.arange(1_000_000, dtype=np.int32))
    with pytest.raises(SourceError, match="gave no answer within 1 s") as missed:
        client.source.ends(Membership.make_bare(layout, np.zeros(1_000_000, dtype=np.int32)))
    assert missed.value.reason is Reason.CLIENT_FAILED
    until(lambda: client.restarts == [Restart.HUNG], "one of both calls counts it")
    assert not Path(f"/proc/{pid}").exists()
    assert len(again.result(60).membership.layout) == 20
    assert client.poll() == 20
    client.process.close()


def test_a_hanging_call_keeps_no_other_client_waiting(client: Client) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        waiting = client.add("{}:{}".format(*silent.getsockname()))
        failed = call_in_thread(waiting.metadata, "waits")
        assert client.poll() == 20
        assert not failed.done()
    assert isinstance(failed.exception(60), SourceError)


def test_a_client_that_its_settings_no_longer_make_is_a_failed_poll_with_the_reason(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    """A process that is replaced reads the secrets again, also while one of them is not mounted."""
    (secret := tmp_path / "password").write_text("a secret")
    client = Client(cluster.bootstrap)
    client.source = client.add(cluster.bootstrap, properties={"sasl.password": secret})
    client.poller = Poller("east", client.source, [client], SystemClock())
    assert client.poll() == 20
    client.send(signal.SIGKILL)
    secret.unlink()
    assert client.poll() == 0
    assert "sasl.password: the file" in client.failures[-1].detail
    problem = GroupWatch("east", SystemClock(), client.source, interval=60.0).sweep().problem
    assert "sasl.password: the file" in problem
    secret.write_text("a secret")
    assert client.poll() == 20
    client.process.close()


def test_processes_that_follow_each_other_leave_no_file_open(client: Client) -> None:
    """Jobs call from threads that go on; a cluster may be away for days."""
    together = threading.Barrier(3)

    def ask(_: int) -> str | None:
        together.wait(60)
        return str(client.source.cluster_id())

    with ThreadPoolExecutor(3) as jobs:

        def count_after_restart() -> int:
            client.send(signal.SIGKILL)
            assert len(set(jobs.map(ask, range(3)))) == 1
            return len(list(Path("/proc/self/fd").iterdir()))

        first = count_after_restart()
        assert max(count_after_restart() for _ in range(4)) <= first + 1


def test_a_process_that_never_answered_is_followed_by_another_one_later() -> None:
    """Where each ends at once a host is not kept busy with starts."""
    process = ClientProcess("east")
    process.start()
    pid = process.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until(lambda: not _runs(pid), "it ended")
    with pytest.raises(SourceError, match=r"a new one starts in 10 s"):
        process.start()
    process.close()


def test_a_process_that_cannot_be_started_is_named_and_comes_later(cluster: FakeCluster) -> None:
    client = Client(cluster.bootstrap)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
    try:
        with pytest.raises(SourceError, match=r"could not be started: .*; next step: allow this exporter") as missed:
            client.source.metadata()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert missed.value.reason is Reason.CLIENT_FAILED
    until(lambda: client.poll() == 20, "a poll is good")
    client.process.close()


def _runs(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("ended", ["killed", "at its end"])
def test_it_ends_with_the_exporter_and_no_sooner(ended: str) -> None:
    program = textwrap.dedent("""
        import sys, time
        from exporter.kafka.process import ClientProcess
        if __name__ == "__main__":
            process = ClientProcess("east")
            process.start()
            print(process.pid, flush=True)
            time.sleep(60 if sys.argv[1] == "killed" else 0)
    """)
    with subprocess.Popen([sys.executable, "-c", program, ended], stdout=subprocess.PIPE, text=True) as exporter:
        assert exporter.stdout is not None
        pid = int(exporter.stdout.readline())
        if ended == "killed":
            [blocked] = re.findall(r"SigBlk:\s+(\w+)", Path(f"/proc/{pid}/status").read_text())
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                assert int(blocked, 16) & 1 << (number - 1), "the exporter must end first"
            exporter.kill()
        exporter.wait(20)
    until(lambda: not _runs(pid), "it ended")
