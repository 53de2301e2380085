"""The client processes of all clusters, two for each: one for polls, one for all other requests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress

from exporter.domain.ports import SourceError
from exporter.kafka.process import ClientProcess, Restart
from exporter.kafka.spares import Spare

_POLLS, _OTHER_REQUESTS = "polls", "groups and times"

ROLES = {_POLLS: "polls", _OTHER_REQUESTS: "other-requests"}
"""The parts of the processes of a cluster, with their labels in metrics."""


class ClientProcesses:
    """Two processes with Kafka clients for each cluster: one for polls, one for all other requests.

    A poll goes on when the other process ends.
    """

    def __init__(self, spares: list[Spare] | None = None) -> None:
        """The first processes are taken from ``spares``, and the rest are ended with them."""
        self._spares = [] if spares is None else spares
        self.on_restart: Callable[[str, Restart], None] = lambda _, __: None
        """Called with the cluster each time one of its processes is replaced."""
        self._processes: dict[tuple[str, str], ClientProcess] = {}
        self._lock = threading.Lock()

    def polls(self, cluster: str) -> ClientProcess:
        """Return the process that polls a cluster."""
        return self._of(cluster, _POLLS)

    def other_requests(self, cluster: str) -> ClientProcess:
        """Return the process for all other requests to a cluster: groups, offsets by time, and kafka-python."""
        return self._of(cluster, _OTHER_REQUESTS)

    def memory(self, cluster: str) -> dict[str, int | None]:
        """Return the bytes that each process of a cluster holds now (RSS), by its part in ROLES; None: it is away."""
        processes = {part: self._processes.get((cluster, role)) for role, part in ROLES.items()}
        return {part: None if process is None else process.memory for part, process in processes.items()}

    def start(self, clusters: Iterable[str]) -> None:
        """Start the processes that poll these clusters, all at once."""
        for cluster in clusters:
            with suppress(SourceError):  # the first call tries again
                self.polls(cluster).start()

    def dismiss_spares(self) -> None:
        """End the processes that no client has needed."""
        while self._spares:
            self._spares.pop().dismiss()

    def end(self, cluster: str) -> None:
        """End the processes of one cluster."""
        with self._lock:  # a job may begin meanwhile
            ended = [self._processes.pop(key) for key in list(self._processes) if key[0] == cluster]
        for process in ended:
            process.close()

    def close(self) -> None:
        """End all processes."""
        self.dismiss_spares()
        with self._lock:
            processes = list(self._processes.values())
        for process in processes:
            process.close()

    def _of(self, cluster: str, role: str) -> ClientProcess:
        with self._lock:  # else two jobs that begin together make two, and the first one is never ended
            if (cluster, role) not in self._processes:
                self._processes[cluster, role] = client_process(
                    cluster, role, lambda why: self.on_restart(cluster, why), self._spares
                )
            return self._processes[cluster, role]


def client_process(
    cluster: str,
    role: str,
    on_restart: Callable[[Restart], None] = lambda _: None,
    spares: list[Spare] | None = None,
) -> ClientProcess:
    """Return a process with clients of one cluster."""
    name = f"the Kafka client for {role}"
    return ClientProcess(name, owner=f"cluster {cluster}: ", on_restart=on_restart, spares=spares)
