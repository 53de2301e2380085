"""A broker from before KRaft, with the ZooKeeper it needs; loopback only, all files in one folder."""

import socket
import time
from pathlib import Path

from tests.demo.broker import Broker, DemoError, free_port, java_properties
from tests.demo.lifeline import GRACE_SECONDS, Lifeline

_OF_KRAFT = ("process.roles", "controller.quorum.voters", "controller.listener.names")


class ZookeeperBroker(Broker):
    """A broker whose metadata is in a ZooKeeper of its own (Kafka up to 3.9). ``stop`` ends both."""

    def __init__(self, folder: Path, *, jars: Path) -> None:
        super().__init__(folder, jars=jars)
        self._zookeeper: Lifeline | None = None
        self.zookeeper_port = free_port()
        for name in _OF_KRAFT:
            del self.properties[name]
        self.properties |= {
            "broker.id": self.properties["node.id"],
            "listeners": f"PLAINTEXT://{self.bootstrap}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT",
            "zookeeper.connect": f"127.0.0.1:{self.zookeeper_port}",
        }

    def start(self, timeout: float = 120.0) -> None:
        """Start ZooKeeper, unless it runs, and then the broker. Raises DemoError."""
        if self._zookeeper is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            settings = self.folder / "zookeeper.properties"
            properties = {
                "dataDir": str(self.folder / "zookeeper"),
                "clientPort": str(self.zookeeper_port),
                "clientPortAddress": "127.0.0.1",
                "admin.enableServer": "false",
            }
            settings.write_text(java_properties(properties), encoding="ascii")
            main = "org.apache.zookeeper.server.ZooKeeperServerMain"
            log = self.folder / "zookeeper.log"
            self._zookeeper = Lifeline(self._java(main, str(settings), heap="128m"), output=log, cwd=self.folder)
            self._await_zookeeper(log, timeout)
        super().start(timeout)

    def stop(self, grace: float = GRACE_SECONDS) -> None:
        """End the broker and the ZooKeeper that it started."""
        super().stop(grace)
        if self._zookeeper is not None:
            self._zookeeper.stop()
            self._zookeeper = None

    def _format(self, config: Path, timeout: float) -> None:
        """Do nothing: only KRaft wants its folder formatted."""

    def _await_zookeeper(self, log: Path, timeout: float) -> None:
        assert self._zookeeper is not None
        deadline = time.monotonic() + timeout
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.zookeeper_port)) == 0:
                    return
            if self._zookeeper.poll() is not None or time.monotonic() > deadline:
                raise DemoError(f"ZooKeeper did not start:\n{log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.1)
