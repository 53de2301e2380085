"""Kafka clients in processes of their own: what happens to one happens to no other, and not to the exporter."""

from __future__ import annotations

import logging
import os
import resource
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from exporter.domain import Answer, Reason, TopicPartition
from exporter.domain.groups.consumer_groups import Description
from exporter.domain.polls.layout import Layout
from exporter.domain.polls.metadata import Membership
from exporter.domain.ports import SourceError
from exporter.kafka import (
    ClientProcess,
    ClientProcesses,
    RemoteAddressCheck,
    RemotePollSource,
    RemoteSource,
    Restart,
)
from exporter.kafka.child import IDLE_SECONDS
from exporter.kafka.poll_source import WORTH_BATCHING
from tests.bench.fake_cluster import FakeCluster
from tests.integration.secured import await_that
from tests.integration.test_bad_answers import well
from tests.scripted import FIND_COORDINATOR, ScriptedBroker
from tests.times import end_of, first_since

NOBODY = "127.0.0.1:9"
"""An address at which nothing listens."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    """Three brokers, two topics of ten partitions, and two groups."""
    with FakeCluster(topics=2, partitions=10, groups=2, group_partitions=3) as cluster:
        yield cluster


class Client:
    """A process that polls, and why it was replaced."""

    def __init__(self, bootstrap: str, *, patience: float = 30.0, **options: Any) -> None:
        self.restarts: list[Restart] = []
        self.process = ClientProcess("the client", on_restart=self.restarts.append, **options)
        self.source = self.add("polls", bootstrap, patience)

    def add(
        self, name: str, bootstrap: str, patience: float = 30.0, properties: Mapping[str, str] | None = None
    ) -> RemotePollSource:
        """Another client in the same process."""
        return RemotePollSource(
            self.process,
            name,
            patience=patience,
            properties={"bootstrap.servers": bootstrap, **(properties or {})},
            # Nothing listens at NOBODY, which is known at once; a real broker may be slow on a busy machine.
            request_timeout=1.0 if bootstrap == NOBODY else 10.0,
            chunk_size=250,
            calls_in_flight=4,
        )

    def poll(self) -> int:
        """Return how many partitions were read. Raises SourceError where the poll is a missed one."""
        rows = np.arange(len(self.source.metadata(fresh=False).membership.layout))
        self.source.earliest(rows)
        return int(np.count_nonzero(self.source.latest(rows).found))

    def polls_again(self) -> bool:
        """Whether a poll is good."""
        try:
            return self.poll() > 0
        except SourceError:
            return False

    def send(self, number: int) -> int:
        """Send the process a signal, and return which it was."""
        assert self.process.pid is not None
        os.kill(self.process.pid, number)
        return self.process.pid


@pytest.fixture
def client(cluster: FakeCluster) -> Iterator[Client]:
    """One that has polled."""
    client = Client(cluster.bootstrap)
    assert client.poll() == 20
    yield client
    client.process.close()


@pytest.mark.parametrize(
    ("how", "name"), [(signal.SIGABRT, "SIGABRT"), (signal.SIGKILL, "SIGKILL"), (signal.SIGRTMIN + 1, "signal 35")]
)
def test_an_abort_costs_one_poll(client: Client, how: int, name: str, logged_warnings: Callable[[], list[str]]) -> None:
    """It is counted and logged; the next poll is good, by a new process, with the metadata that was known."""
    before, counted, pid = client.source.metadata(fresh=False), client.source.lookups()["latest"], client.send(how)
    with pytest.raises(SourceError, match="the client was ended by ") as missed:
        client.poll()
    assert missed.value.reason is Reason.CLIENT_FAILED
    assert "next step" in missed.value.detail
    await_that(client.polls_again, "a poll is good again")
    assert client.restarts == [Restart.ENDED]
    assert client.process.pid != pid
    assert client.source.metadata(fresh=False) is before
    assert client.source.lookups()["latest"] > counted, "counts go on"
    assert [line for line in logged_warnings() if name in line]


def test_an_answer_that_cannot_be_read_costs_one_poll(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process is replaced at once, and counted: as where another release was installed under a running exporter."""
    with monkeypatch.context() as changed:
        changed.delattr("exporter.kafka.messages.Notes")
        with pytest.raises(SourceError, match="the client was ended by SIGKILL") as missed:
            client.poll()
    assert missed.value.reason is Reason.CLIENT_FAILED
    await_that(client.polls_again, "a poll is good again")
    assert client.restarts == [Restart.ENDED]


def test_a_crash_of_librdkafka_is_survived(logged_warnings: Callable[[], list[str]]) -> None:
    """It ends its process (2.16.1) where an answer lacks a partition. The next poll that is answered is good."""
    with ScriptedBroker({"t": 3}, well) as broker:
        client = Client(broker.bootstrap)
        assert client.poll() == 3
        broker.answering = lambda target, keys: well(target, keys)[:2]
        with pytest.raises(SourceError) as missed:
            client.poll()
        assert missed.value.reason is Reason.CLIENT_FAILED
        broker.answering = well
        await_that(client.polls_again, "a poll is good again")
        assert set(client.restarts) == {Restart.ENDED}
        assert [line for line in logged_warnings() if "ended by SIG" in line]
        client.process.close()


def test_one_that_hangs_is_ended(cluster: FakeCluster) -> None:
    """Past the longest that a call may take; the next poll is good."""
    client = Client(cluster.bootstrap, patience=1.0)
    client.poll()
    pid = client.send(signal.SIGSTOP)
    with pytest.raises(SourceError, match="gave no answer within 1 s"):
        client.poll()
    assert client.restarts == [Restart.HUNG]
    assert not Path(f"/proc/{pid}").exists()
    await_that(client.polls_again, "a poll is good again")
    client.process.close()


def test_one_that_reads_nothing_hangs_too(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not fit into the socket is not waited for longer than for an answer."""
    monkeypatch.setattr("exporter.kafka.process._SEND_SECONDS", 1)
    client = Client(cluster.bootstrap, patience=1.0)
    client.poll()
    client.send(signal.SIGSTOP)
    with pytest.raises(SourceError, match="gave no answer within 1 s"):
        client.source.latest(np.zeros(1_000_000, dtype=np.intp))
    assert client.restarts == [Restart.HUNG]
    client.process.close()


def test_the_end_of_a_process_leaves_others_running(cluster: FakeCluster, client: Client) -> None:
    """Another cluster, and whoever asks the same one for groups, go on in the same process."""
    other = Client(cluster.bootstrap)
    other.poll()
    pid = other.process.pid
    client.send(signal.SIGABRT)
    await_that(lambda: bool(client.restarts), "the end is noticed")
    assert other.poll() == 20
    assert (other.process.pid, other.restarts) == (pid, [])
    other.process.close()


def test_one_that_leaks_is_replaced_between_two_polls(cluster: FakeCluster) -> None:
    """No poll is missed for that."""
    client = Client(cluster.bootstrap, growth_bytes=-1)
    before = client.source.metadata(fresh=True)
    assert [client.poll() for _ in range(3)] == [20] * 3
    assert client.restarts == [Restart.MEMORY] * 3
    assert client.source.metadata(fresh=False) is before
    client.process.close()


def test_one_that_reaches_no_broker_is_replaced() -> None:
    """After so many polls in a row, and the next one after twice as many."""
    client = Client(NOBODY, failures=2)
    seen = []
    for _ in range(7):
        with pytest.raises(SourceError) as missed:
            client.poll()
        assert missed.value.reason is Reason.CLUSTER_UNREACHABLE
        seen.append(len(client.restarts))
    assert seen == [0, 1, 1, 1, 1, 2, 2]
    assert set(client.restarts) == {Restart.FAILING}
    client.process.close()


def test_a_client_that_reaches_its_cluster_hides_none_that_does_not(cluster: FakeCluster) -> None:
    """Two clients in one process, polled in turns: the blind one has the process replaced all the same."""
    client = Client(cluster.bootstrap, failures=2)
    blind = client.add("blind", NOBODY)
    for _ in range(2):
        assert client.polls_again()
        with pytest.raises(SourceError):
            blind.metadata(fresh=True)
    assert client.restarts == [Restart.FAILING]
    client.process.close()


def test_a_new_process_waits_longer_each_time(cluster: FakeCluster) -> None:
    """One that ends before its first answer is started again after 1, 2, 4, ... seconds."""
    client = Client(cluster.bootstrap)
    for _ in range(2):
        await_that(lambda: _starts(client), "a new one starts")
        pid = client.send(signal.SIGKILL)
        await_that(lambda pid=pid: not Path(f"/proc/{pid}").exists(), "it ended")  # type: ignore[misc]
        await_that(lambda: client.process.generation == 0, "the end is noticed")
    with pytest.raises(SourceError, match=r"a new one starts in [12] s"):
        client.poll()
    client.process.close()


def test_a_process_that_cannot_be_started_is_named_and_comes_later(cluster: FakeCluster) -> None:
    """Where this host gives no more files, each poll is a missed one, and the next good one needs no restart."""
    client = Client(cluster.bootstrap)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
    try:
        with pytest.raises(SourceError, match="could not be started: Too many open files; next step: allow") as missed:
            client.poll()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert missed.value.reason is Reason.CLIENT_FAILED
    await_that(client.polls_again, "a poll is good")
    client.process.close()


def _starts(client: Client) -> bool:
    try:
        client.process.start()
    except SourceError:
        return False
    return True


def test_it_ends_with_the_exporter() -> None:
    """Also where the exporter is killed."""
    program = textwrap.dedent("""
        import sys, time
        from exporter.kafka import ClientProcess
        process = ClientProcess("the client")
        process.start()
        print(process.pid, flush=True)
        time.sleep(60)
    """)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as exporter:
        assert exporter.stdout is not None
        pid = int(exporter.stdout.readline())
        assert Path(f"/proc/{pid}").exists()
        exporter.kill()
    await_that(lambda: not _alive(pid), "it ended")


def _alive(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


def test_ctrl_c_is_not_meant_for_it(client: Client) -> None:
    """What ends a group of processes leaves it to the exporter, which ends in order."""
    assert client.process.pid is not None
    assert os.getpgid(client.process.pid) != os.getpgid(0)
    for number in (signal.SIGINT, signal.SIGTERM):
        client.send(number)
    assert client.poll() == 20
    assert client.restarts == []


def test_secrets_reach_it_over_the_socket_alone(cluster: FakeCluster, logged_warnings: Callable[[], list[str]]) -> None:
    """Not on its command line, not in its environment, and not in the log."""
    secret = "not-to-be-seen"  # noqa: S105 - a canary
    client = Client(cluster.bootstrap)
    source = client.add(
        "secret",
        NOBODY,
        properties={
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "liveness",
            "sasl.password": secret,
        },
    )
    with pytest.raises(SourceError) as failed:
        source.metadata(fresh=True)
    folder = Path(f"/proc/{client.process.pid}")
    assert secret not in (folder / "cmdline").read_text() + (folder / "environ").read_text(errors="replace")
    assert secret not in "\n".join([*logged_warnings(), failed.value.detail])
    client.process.close()


def test_its_log_is_the_exporters(caplog: pytest.LogCaptureFixture) -> None:
    """A line of librdkafka's comes out by the logger that it would come by in one process, from the same level on."""
    caplog.set_level(logging.DEBUG)
    client = Client(NOBODY)
    with pytest.raises(SourceError):
        client.poll()
    lines = [each for each in caplog.records if each.getMessage().startswith("librdkafka: FAIL")]
    assert {(each.name, each.levelno) for each in lines} == {("exporter.kafka.client", logging.DEBUG)}
    client.process.close()


@pytest.mark.parametrize(("level", "shown"), [(logging.DEBUG, True), (logging.INFO, False)])
def test_its_log_follows_a_level_that_a_reload_changes(
    level: int, shown: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """From the next call on, without a restart of the process."""
    caplog.set_level(logging.INFO if shown else logging.DEBUG, "exporter")
    client = Client(NOBODY)
    with pytest.raises(SourceError):
        client.poll()
    caplog.clear()
    caplog.set_level(level, "exporter")
    later = client.add("after a reload", NOBODY)
    with pytest.raises(SourceError):
        later.metadata(fresh=True)
    assert any(each.getMessage().startswith("librdkafka: FAIL") for each in caplog.records) is shown
    assert client.restarts == []
    client.process.close()


def test_a_property_that_librdkafka_refuses_is_named() -> None:
    """By a ValueError, as where the client is made; and the process is well."""
    client = Client(NOBODY)
    source = client.add("refused", NOBODY, properties={"no.such.property": "1"})
    with pytest.raises(ValueError, match=r"no\.such\.property"):
        _ = source.exposed
    assert client.restarts == []
    client.process.close()


def test_a_client_outlives_an_earlier_one_of_its_name(client: Client, cluster: FakeCluster) -> None:
    """One that a reload left under way takes only itself along when it is closed, and leaves no connection behind."""

    def connected() -> int:
        """Return how many clients of librdkafka the process has."""
        tasks = Path(f"/proc/{client.process.pid}/task").iterdir()
        return sum((task / "comm").read_text() == "rdk:main\n" for task in tasks)

    earlier = client.add("beside", cluster.bootstrap)
    earlier.metadata(fresh=False)
    clients = connected()
    later = client.add("beside", cluster.bootstrap)
    later.metadata(fresh=False)
    earlier.close()
    assert len(later.metadata(fresh=True).membership.layout) == 20
    await_that(lambda: connected() == clients, "the earlier client is gone")
    later.close()
    with pytest.raises(SourceError, match="closed"):
        later.metadata(fresh=True)


def test_a_process_without_a_thread_to_listen_to_it_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a limit of threads: processes that stay would use it up for good."""
    begun: list[int] = []
    start = threading.Thread.start

    def last_thread(thread: threading.Thread) -> None:
        name, _, pid = thread.name.partition(", process ")
        if name == "the client":
            begun.append(int(pid))
            if begun.count(int(pid)) == 2:
                raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", last_thread)
    process = ClientProcess("the client")
    with pytest.raises(SourceError, match="can't start new thread; next step: allow this exporter more"):
        process.start()
    await_that(lambda: not Path(f"/proc/{begun[0]}").exists(), "the process has ended")
    process.close()


def test_a_job_that_begins_while_processes_end_disturbs_nothing() -> None:
    """A reload that takes out a cluster goes on, and so does a job of another cluster that needs its first process."""

    class Growing(dict[tuple[str, str], ClientProcess]):
        """While one looks at its keys, a job begins."""

        def __iter__(self) -> Iterator[tuple[str, str]]:
            for key in super().__iter__():
                jobs.append(threading.Thread(target=processes.other_requests, args=("far",), daemon=True))
                jobs[-1].start()
                jobs[-1].join(0.2)
                yield key

    jobs: list[threading.Thread] = []
    processes = ClientProcesses()
    processes.polls("prod")
    processes.polls("far")
    processes._processes = Growing(processes._processes)  # noqa: SLF001 - the race is in it
    processes.end("prod")
    for job in jobs:
        job.join()
    assert processes.memory("far") == {"polls": None, "other-requests": None}
    assert set(dict.keys(processes._processes)) == {("far", "polls"), ("far", "groups and times")}  # noqa: SLF001
    processes.close()


def test_groups_and_times_are_asked_in_the_same_way(cluster: FakeCluster) -> None:
    """A source beside the polls gives what one in this process would, and counts its requests."""
    process = ClientProcess("beside")
    source = RemoteSource(
        process, "groups", patience=30.0, alone=True, properties={"bootstrap.servers": cluster.bootstrap}
    )
    names = sorted(source.groups.list_groups().names)
    assert names == ["group-0000", "group-0001"]
    assert all(isinstance(each, Description) for each in source.groups.describe(names).values())
    committed = source.groups.committed(names)
    assert (sorted(committed.names), committed.first.tolist(), committed.failed) == (names, [0, 3, 6], {})
    key = TopicPartition("bench-0000", 0)
    leader = source.metadata().topics[key.topic].partitions[key.partition].leader
    assert leader is not None
    assert first_since(source, key, 0.0, leader).offset == 0
    both = Membership.led(Layout.of({key.topic: [0, 1], "unasked": [0]}), np.full(3, leader, dtype=np.int32))
    later = source.by_time(both, np.array([0, 0, 0]), np.array([0, 2**42, 1]))
    assert later.found.tolist() == [True, False, True]
    assert end_of(source, key, leader).offset == 3
    membership = Membership.led(Layout.of({key.topic: [key.partition]}), np.array([leader], dtype=np.int32))
    assert (source.starts(membership).offset.tolist(), source.ends(membership).offset.tolist()) == ([0], [3])
    assert source.groups.counts["offsets"] == 2
    with pytest.raises(ValueError, match="before 1970"):
        first_since(source, key, -1.0, leader)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGSTOP)
    os.kill(process.pid, signal.SIGKILL)
    await_that(lambda: process.generation == 0, "the end is noticed")
    assert end_of(source, key, leader).reason is Reason.CLIENT_FAILED
    assert source.groups.describe(names) == dict.fromkeys(names, Reason.CLIENT_FAILED)
    assert source.groups.committed(names).failed == dict.fromkeys(names, Reason.CLIENT_FAILED)
    assert (
        source.ends(membership).answer(0) == source.starts(membership).answer(0) == Answer(reason=Reason.CLIENT_FAILED)
    )
    source.close()


def test_an_address_is_tried_alone(cluster: FakeCluster) -> None:
    """One that answers names its topics, and one that does not is a finding, not an error."""
    process = ClientProcess("addresses")
    found = [
        RemoteAddressCheck(
            process, address, patience=30.0, properties={"bootstrap.servers": ""}, request_timeout=1.0
        ).check(address)
        for address in (cluster.bootstrap.split(",")[0], NOBODY)
    ]
    assert (found[0].visible_topics, found[1].reason) == (2, Reason.CLUSTER_UNREACHABLE)
    process.close()


@pytest.mark.parametrize(
    ("module", "without"),
    [
        ("exporter.app", {"confluent_kafka", "kafka", "exporter.kafka.kafka_python"}),
        ("exporter.cli", {"confluent_kafka", "pyarrow"}),
        ("exporter.doctor.examination", {"confluent_kafka"}),
        ("exporter.commands.explain", {"confluent_kafka"}),
        ("exporter.kafka.child", {"pyarrow", "pydantic", "uvicorn", "starlette", "apscheduler", "prometheus_client"}),
        ("exporter.kafka.child", {"kafka", "exporter.kafka.kafka_python"}),
    ],
)
def test_each_process_loads_what_it_needs(module: str, without: set[str]) -> None:
    """The exporter no librdkafka, and a client process, of which there are two a cluster, little else."""
    program = f"import sys, {module}; print(*sys.modules, sep='\\n')"
    loaded = subprocess.run([sys.executable, "-P", "-c", program], check=True, capture_output=True, text=True).stdout
    assert not without & set(loaded.split())


def test_a_refused_consumer_is_closed_without_another_question() -> None:
    """librdkafka asks twice a second who coordinates its group, each time a line in an authorizer's log."""
    with ScriptedBroker({"t": WORTH_BATCHING, "__consumer_offsets": 1}, well) as broker:
        client = Client(broker.bootstrap)
        client.source.metadata(fresh=False)
        assert client.source.earliest(np.arange(WORTH_BATCHING)).found.all()

        def silent() -> bool:
            before = broker.requests[FIND_COORDINATOR]
            time.sleep(2 * IDLE_SECONDS)
            return 1 <= before == broker.requests[FIND_COORDINATOR]

        await_that(silent)
        questions = broker.requests[FIND_COORDINATOR]
        client.poll()  # its answers tell why
        client.send(signal.SIGKILL)
        await_that(client.polls_again, "a poll is good again")
        time.sleep(2 * IDLE_SECONDS)
        assert broker.requests[FIND_COORDINATOR] == questions, "the next process makes no consumer"
        client.process.close()
