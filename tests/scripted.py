"""A Kafka broker that says what a test tells it to: the requests of a poll, over loopback.

It offers versions from before flexible encoding (KIP-482), so that messages are plain structs.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Self

LIST_OFFSETS, METADATA, FIND_COORDINATOR, API_VERSIONS = 2, 3, 10, 18
_OFFERED = {LIST_OFFSETS: (1, 5), METADATA: (0, 8), FIND_COORDINATOR: (0, 0), API_VERSIONS: (0, 0)}
_UNSUPPORTED_VERSION = 35
GROUP_AUTHORIZATION_FAILED = 30


class ListedOffset(NamedTuple):
    """One partition of an answer to ListOffsets, as it goes over the wire."""

    topic: str
    partition: int
    offset: int = -1
    timestamp: int = -1
    error: int = 0
    epoch: int = 0


Answering = Callable[[int, Sequence[tuple[str, int]]], Sequence[ListedOffset]]
"""Takes the timestamp or spec that is asked for, and of which partitions."""


class ScriptedBroker:
    """Broker 1 of a cluster of its own, which says nothing of coordinators; ``topics`` are numbers of partitions."""

    def __init__(self, topics: Mapping[str, int], answering: Answering) -> None:
        self.topics = topics
        self.answering = answering
        self.requests: Counter[int] = Counter()
        """Requests that came, by their key."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._connections: list[socket.socket] = []
        self.bootstrap = "{}:{}".format(*self._listener.getsockname())

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self._listener, *self._connections):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._connections.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError), connection.makefile("rb") as stream:
            while size := stream.read(4):
                request = _Reader(stream.read(*struct.unpack(">i", size)))
                key, version, correlation = request.take(">hhi")
                request.text()
                body = self._answer(key, version, request)
                connection.sendall(struct.pack(">ii", len(body) + 4, correlation) + body)

    def _answer(self, key: int, version: int, request: _Reader) -> bytes:
        self.requests[key] += 1
        if key == FIND_COORDINATOR:
            return struct.pack(">hi", GROUP_AUTHORIZATION_FAILED, -1) + _text("") + struct.pack(">i", -1)
        if key == API_VERSIONS:
            offered = [struct.pack(">hhh", each, *versions) for each, versions in _OFFERED.items()]
            return struct.pack(">h", _UNSUPPORTED_VERSION if version else 0) + _array(offered)
        return self._metadata(request) if key == METADATA else self._offsets(request)

    def _metadata(self, request: _Reader) -> bytes:
        (count,) = request.take(">i")
        names = [request.text() for _ in range(count)] if count >= 0 else list(self.topics)
        host, port = self.bootstrap.split(":")
        broker = struct.pack(">i", 1) + _text(host) + struct.pack(">ih", int(port), -1)
        one = struct.pack(">ii", 1, 1)  # an array of node ids that holds broker 1
        topics = []
        for name in names:
            partitions = [
                struct.pack(">hiii", 0, number, 1, 0) + one * 2 + _array([]) for number in range(self.topics[name])
            ]
            topics.append(struct.pack(">h", 0) + _text(name) + b"\0" + _array(partitions) + struct.pack(">i", 0))
        cluster = _text("scripted") + struct.pack(">i", 1)
        return struct.pack(">i", 0) + _array([broker]) + cluster + _array(topics) + struct.pack(">i", 0)

    def _offsets(self, request: _Reader) -> bytes:
        request.take(">ib")
        requested: dict[int, list[tuple[str, int]]] = {}
        for _ in range(*request.take(">i")):
            topic = request.text()
            for _ in range(*request.take(">i")):
                partition, _, target = request.take(">iiq")
                requested.setdefault(target, []).append((topic, partition))
        # Each in a topic entry of its own: the protocol allows that, and a duplicate stays one.
        entries = [
            _text(each.topic)
            + _array([struct.pack(">ihqqi", each.partition, each.error, each.timestamp, each.offset, each.epoch)])
            for target, keys in requested.items()
            for each in self.answering(target, keys)
        ]
        return struct.pack(">i", 0) + _array(entries)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, layout: str) -> tuple[int, ...]:
        found = struct.unpack_from(layout, self._data, self._at)
        self._at += struct.calcsize(layout)
        return found

    def text(self) -> str:
        (size,) = self.take(">h")
        start, self._at = self._at, self._at + max(0, size)
        return self._data[start : self._at].decode()


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def _array(items: Sequence[bytes]) -> bytes:
    return struct.pack(">i", len(items)) + b"".join(items)
