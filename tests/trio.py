"""Three real brokers of one cluster, of which a test may take the third away in three ways."""

import contextlib
import math
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

from confluent_kafka import ElectionType, KafkaException, TopicPartition  # type: ignore[attr-defined]

from tests.demo.broker import Broker, free_port
from tests.workbench import Workbench

THIRD = 3


@contextlib.contextmanager
def frozen(broker: Broker) -> Iterator[None]:
    """While this lasts a broker stands still (SIGSTOP): its connections stay open, nothing answers."""
    java = int(Path(f"/proc/{broker.pid}/task/{broker.pid}/children").read_text().split()[0])
    os.kill(java, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(java, signal.SIGCONT)


class Trio:
    """Brokers 1 (also the controller), 2 and 3; clients reach each through a wire that can be cut."""

    def __init__(self, folder: Path, jars: Path) -> None:
        first = Broker(folder / "1", jars=jars)
        self.brokers = {1: first}
        for node in (2, THIRD):
            properties = {
                "process.roles": "broker",
                "node.id": str(node),
                "controller.quorum.voters": first.properties["controller.quorum.voters"],
                "listeners": f"PLAINTEXT://127.0.0.1:{free_port()}",
            }
            self.brokers[node] = Broker(
                folder / str(node), jars=jars, properties=properties, cluster_id=first.cluster_id
            )
        self.wires = {node: Wire(broker.bootstrap) for node, broker in self.brokers.items()}
        for node, wire in self.wires.items():
            self.brokers[node].properties["advertised.listeners"] = f"PLAINTEXT://{wire.address}"
        self.bootstrap = ",".join(wire.address for wire in self.wires.values())
        self.workbench = Workbench(first.bootstrap)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        # The controller last: a broker cannot leave in order without it.
        for node in sorted(self.brokers, reverse=True):
            self.brokers[node].stop()
        for wire in self.wires.values():
            wire.close()

    def start(self) -> None:
        down = [broker for broker in self.brokers.values() if broker.pid is None]
        with ThreadPoolExecutor() as starting:
            list(starting.map(lambda each: each.start(), down))

    def create(self, topic: str, per_broker: int = 1) -> None:
        """Make a topic whose partitions are led by brokers 1, 2, 3, 1, ...; none has another replica."""
        self.workbench.create_on(topic, [[1 + number % 3] for number in range(3 * per_broker)])

    def leaders(self, topic: str) -> set[int]:
        """Return who leads the partitions of a topic; nobody where no broker answers in time, as after a kill."""
        try:
            topics = self.workbench.admin.list_topics(timeout=10).topics
        except KafkaException:
            return set()
        return {partition.leader for partition in topics[topic].partitions.values()}

    def prefer(self, topic: str) -> set[int]:
        """Have the first replica of each partition lead again, where it may; return who leads."""
        admin: Any = self.workbench.admin  # the stubs know no elections
        with contextlib.suppress(KafkaException):  # as long as that broker is not in sync
            partitions = admin.list_topics(timeout=10).topics[topic].partitions
            admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, each) for each in partitions]).result(30)
        return self.leaders(topic)

    @contextlib.contextmanager
    def dead(self) -> Iterator[None]:
        """While this lasts the third broker is killed."""
        self.brokers[THIRD].kill()
        try:
            yield
        finally:
            self.brokers[THIRD].start()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """While this lasts the third broker stands still."""
        with frozen(self.brokers[THIRD]):
            yield

    @contextlib.contextmanager
    def cut_off(self) -> Iterator[None]:
        """While this lasts clients do not get through to the third broker, but its cluster does."""
        wire = self.wires[THIRD]
        wire.cut = True
        try:
            yield
        finally:
            wire.cut = False
            wire.hang_up()


class Wire:
    """A port that hands on to a broker's; it may be cut, be slow, and forget idle connections, as firewalls do."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", free_port()))
        self._ends: list[socket.socket] = []
        self.cut = False
        self.delay = 0.0
        """Seconds that each request waits."""
        self.forgets_after = math.inf
        """Seconds without a byte after which a connection is forgotten."""
        self.passed = 0
        """Blocks that came from clients and were handed on."""
        self.address = "{}:{}".format(*self._listener.getsockname())
        threading.Thread(target=self._accept, daemon=True).start()

    def lead_to(self, target: str) -> None:
        """Hand on to another broker from now on, and end every connection."""
        self._target = target
        self.hang_up()

    def hang_up(self) -> None:
        """End every connection: what was lost on the way stays lost."""
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.hang_up()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                try:
                    host, port = self._target.split(":")
                    far = socket.create_connection((host, int(port)))
                except OSError:
                    near.close()
                    continue
                self._ends += [near, far]
                used = [time.monotonic()]
                for ends in ((near, far, True), (far, near, False)):
                    threading.Thread(target=self._hand_on, args=(*ends, used), daemon=True).start()

    def _hand_on(self, source: socket.socket, sink: socket.socket, delayed: bool, used: list[float]) -> None:
        """Hand on what comes; ``used`` is when either side of the connection was last heard, -inf: forgotten."""
        with contextlib.suppress(OSError), source, sink:
            while data := source.recv(1 << 18):
                now = time.monotonic()
                used[0] = now if now - used[0] <= self.forgets_after else -math.inf
                if delayed:
                    time.sleep(self.delay)
                    self.passed += 1
                if not self.cut and used[0] > 0:
                    sink.sendall(data)
            sink.shutdown(socket.SHUT_RDWR)
