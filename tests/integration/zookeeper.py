"""A broker from before KRaft, with the ZooKeeper it needs; loopback only, all files in one folder."""

from pathlib import Path

from tests.demo.broker import Broker, free_port, java_properties
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
            "zookeeper.connection.timeout.ms": "120000",
        }

    def start(self, timeout: float = 120.0) -> None:
        """Start ZooKeeper, unless it runs, and then the broker, which waits for it. Raises DemoError."""
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
            command = self._java(main, str(settings), heap="128m")
            self._zookeeper = Lifeline(command, output=self.folder / "zookeeper.log", cwd=self.folder)
        super().start(timeout)

    def stop(self, grace: float = GRACE_SECONDS) -> None:
        """End the broker and the ZooKeeper that it started."""
        super().stop(grace)
        if self._zookeeper is not None:
            self._zookeeper.stop()
            self._zookeeper = None

    def _format(self, config: Path, timeout: float) -> None:
        """Do nothing: only KRaft wants its folder formatted."""
