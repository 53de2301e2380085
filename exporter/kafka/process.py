"""Runs the Kafka clients of a cluster in a process of their own, by the standard library's managers.

librdkafka (2.16.1) aborts its process where an assertion fails, such as when the connection of a coordinator drops
during a request (its issue 4605), and some connections never recover (5301). The exporter itself loads no librdkafka.
A process that ends, hangs or stays blind is ended, and another one starts with the next call.
"""

from __future__ import annotations

import atexit
import logging
import math
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from exporter.domain.polls.readings import Reason
from exporter.domain.ports import SourceError
from exporter.kafka.manager_process import ManagerProcess

log = logging.getLogger(__name__)

_FAILURES = 5
"""A client that cannot reach its cluster so many times in a row may be blind: its process is replaced."""

_PAUSE = 10.0
"""Seconds without a process after one that ended before its first answer: the next one may fare no better."""

_STARTS_OR_ENDS_WITHIN = 30.0
"""Seconds that a new process gets in addition to those of its first call, and a client to close."""

OFFSETS = "exporter.kafka.source:KafkaSource"
TIERS = "exporter.kafka.tiers_and_sizes:TierClient"
LOG_SIZES = "exporter.kafka.tiers_and_sizes:LogDirsClient"
"""Kinds of clients, by where they are defined."""

EARLIEST_LOCAL = "earliest-local"
"""The first offset on the leader's own disk (KIP-405, brokers 3.5 and newer)."""
LATEST_TIERED = "latest-tiered"
"""The last offset in the remote tier (KIP-1005, brokers 3.9 and newer)."""

LOG_DIRS = "log-dirs"
"""DescribeLogDirs (brokers from 1.0): needs DESCRIBE on the cluster."""


if TYPE_CHECKING:
    _AnyClient = Any
else:
    _AnyClient = object


class Restart(StrEnum):
    """Why a client process was replaced."""

    ENDED = "ended"
    """It ended: an assertion in librdkafka, or it was killed."""
    HUNG = "hung"
    """It did not answer within the time limit of a call."""
    FAILING = "failing"
    """It could not reach the cluster several times in a row; a new client may."""


class _LostError(SourceError):
    """The process ended during a call: all calls are questions, so that they can be asked again."""


class ClientProcess:
    """The process with the clients of one cluster. It starts with the first call. Safe for several threads."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self.on_restart: Callable[[Restart], None] = lambda _: None
        """Called each time the process is replaced."""
        self._lock = threading.RLock()
        self._closed = self._leaving = False
        self._running: ManagerProcess | None = None
        self._not_before = 0.0
        # At exit the standard library would wait for it, and it ends with SIGKILL only.
        atexit.register(self._leave)

    @property
    def pid(self) -> int | None:
        """The number of the process, None while there is none."""
        running = self._running
        return None if running is None else running.process.pid

    @property
    def memory(self) -> int | None:
        """The bytes that the process holds now (RSS), None while there is none."""
        try:
            pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        except OSError:
            return None
        return pages * os.sysconf("SC_PAGE_SIZE")

    def start(self) -> None:
        """Start the process now, so that the first call does not wait for it. Raises SourceError."""
        with self._lock:
            self._alive()

    def call(self, client: RemoteClient, path: str, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
        """Return what a method of the client returns in the process, or raise what it raises.

        Raises SourceError too where the process ends, or does not answer within the client's time limit: then it is
        replaced.
        """
        self._wait_if_leaving()
        with self._lock:
            running = self._alive()
        limit = client.limit_of(arguments) + (0.0 if running.answered else _STARTS_OR_ENDS_WITHIN)
        begun = time.monotonic()
        try:
            with running.end_after(limit):
                proxy: Any = running.proxy_of(client)
                result = proxy._callmethod("call", (path, arguments, keywords))  # noqa: SLF001 - documented for proxies
        except (SourceError, ValueError):
            running.answered = True
            raise
        except (EOFError, OSError):
            # A call that took too long would do so again; those beside it are made again.
            kind = SourceError if time.monotonic() - begun >= limit else _LostError
            detail = self._end(running)
            self._wait_if_leaving()
            raise kind(Reason.CLIENT_FAILED, detail) from None
        running.answered = True
        return result

    def let_go(self, client: RemoteClient) -> None:
        """Close a client."""
        running = self._running
        if running is not None and client in running.proxies:
            with suppress(Exception), running.end_after(_STARTS_OR_ENDS_WITHIN):
                running.proxies.pop(client)._callmethod("close")  # noqa: SLF001

    def replace_if_blind(self, failed: int) -> None:
        """End the process of a client that could not reach its cluster so many times in a row, if these are many."""
        running = self._running
        if running is not None and failed % _FAILURES == 0:
            self._end(running, Restart.FAILING, f"could not reach the cluster {failed} times in a row")

    def close(self) -> None:
        """End the process; calls under way fail, and so do later ones."""
        atexit.unregister(self._leave)
        with self._lock:
            self._closed = True
            running, self._running = self._running, None
        if running is not None:
            running.end()

    def _leave(self) -> None:
        self._leaving = True
        self.close()

    def _wait_if_leaving(self) -> None:
        """Return no more at the exit of the exporter: nobody waits for this thread, and what it did is no failure."""
        if self._leaving:
            threading.Event().wait()

    def _alive(self) -> ManagerProcess:
        """Return the process, a new one where there is none. Raises SourceError."""
        if self._closed:
            raise SourceError(Reason.CLIENT_FAILED, "the Kafka client was closed; next step: none, the exporter ends")
        if self._running is not None and not self._running.alive:
            self._end(self._running)
        if self._running is None:
            if (delay := self._not_before - time.monotonic()) > 0:
                raise SourceError(
                    Reason.CLIENT_FAILED,
                    f"the Kafka client ended, and a new one starts in {math.ceil(delay)} s; next step: none, unless "
                    "this goes on: then report what the log says",
                )
            try:
                self._running = ManagerProcess()
            except (OSError, RuntimeError) as error:  # no process, file or thread more
                self._not_before = time.monotonic() + _PAUSE
                raise SourceError(
                    Reason.CLIENT_FAILED,
                    f"the Kafka client could not be started: {getattr(error, 'strerror', None) or error}; next step: "
                    "allow this exporter more processes, files or memory",
                ) from None
        return self._running

    def _end(self, running: ManagerProcess, why: Restart = Restart.ENDED, how: str = "") -> str:
        """End a process, and count it once; return what a call that was under way says."""
        running.end()
        if not how:
            why = Restart.ENDED if running.overdue is None else Restart.HUNG
            how = running.outcome
        with self._lock:
            known = self._running is running
            if known:
                self._running = None
                if not running.answered:
                    self._not_before = time.monotonic() + _PAUSE
        if known:
            level = logging.INFO if why is Restart.FAILING else logging.WARNING
            log.log(level, "cluster %s: the Kafka client %s; a new one starts", self._cluster, how)
            self.on_restart(why)
        return f"the Kafka client {how}; next step: none, a new one starts"


class RemoteClient(_AnyClient):  # type: ignore[misc]
    """A client in the process of its cluster: what is called here runs there, also of a part (``groups.describe``).

    As many threads may call it as the client itself allows. Every call is a question, which may be asked again.
    """

    def __init__(
        self,
        process: ClientProcess,
        kind: str,
        *,
        limit: float,
        rate: float | None = None,
        alone: bool = False,
        **settings: Any,
    ) -> None:
        """``kind`` is ``module:class`` in the process, made with ``settings`` when it is called first.

        A call that takes longer than ``limit`` seconds means that the process hangs; with a ``rate`` each row of its
        arguments may take a second of it more. A client that is ``alone`` ends the process when it is closed.
        """
        self.kind, self.settings = kind, settings
        self._process, self._alone = process, alone
        self._limit, self._rate = limit, rate
        self._failed: Counter[str] = Counter()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> _Method:
        return _Method(self, name)

    def limit_of(self, arguments: tuple[Any, ...]) -> float:
        """Return the seconds that a call with these arguments may take."""
        columns = [getattr(each, "layout", each) for each in arguments]
        rows = max((len(each) for each in columns if hasattr(each, "__len__")), default=0)
        return self._limit + (rows / self._rate if self._rate else 0.0)

    def ask(self, path: str, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
        """Call a method of the client. Raises SourceError, and what the method raises."""
        try:
            try:
                result = self._process.call(self, path, arguments, keywords)
            except _LostError:  # another process may answer
                result = self._process.call(self, path, arguments, keywords)
        except SourceError as error:
            # Brokers would refuse a new client too, and may lock the user after too many attempts.
            if error.reason not in (Reason.CLIENT_FAILED, Reason.AUTHENTICATION_FAILED, Reason.OTHER):
                self._failed[path] += 1
                self._process.replace_if_blind(self._failed[path])
            raise
        self._failed[path] = 0
        return result

    def close(self) -> None:
        """Close connections. Further calls are errors."""
        if self._alone:
            self._process.close()
        else:
            self._process.let_go(self)


class _Method:
    """A method of a remote client, or one of its parts."""

    def __init__(self, client: RemoteClient, path: str) -> None:
        self._client, self._path = client, path

    def __getattr__(self, name: str) -> _Method:
        return _Method(self._client, f"{self._path}.{name}")

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._client.ask(self._path, arguments, keywords)
