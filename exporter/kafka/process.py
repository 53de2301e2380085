"""Runs Kafka clients in separate processes: one that ends, hangs or grows is replaced, at the cost of its calls.

librdkafka (2.16.1) aborts its process where an assertion fails, such as when the connection of a coordinator drops
during a request (its issue 4605), and some connections never recover (5301). The exporter itself loads no librdkafka.
"""

from __future__ import annotations

import itertools
import logging
import math
import socket
import struct
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from enum import StrEnum
from multiprocessing.connection import Connection
from typing import Any

from exporter.domain.formatting import size
from exporter.domain.polls.readings import Reason
from exporter.domain.ports import SourceError
from exporter.kafka.messages import Answered, Begin, Call, Drop, Failed, Logged, Make, Notes, end_of
from exporter.kafka.spares import Spare, started
from exporter.memory import limit as memory_limit
from exporter.memory import resident

log = logging.getLogger(__name__)
_EXPORTER = logging.getLogger("exporter")

GROWTH_BYTES = 512 * 1024 * 1024
"""A process that uses this much more memory than after its first calls has a leak, and is replaced.

Where the memory of the exporter and its processes is limited, a quarter of the limit, if that is less.
"""

_SETTLED_CALLS = 20
"""Number of calls after which the memory of a process is stable."""

_FAILURES = 3
"""Number of failures of a client in a row after which its process is replaced. The next time it takes twice as many."""

_LONGEST_DELAY = 60.0
_SEND_SECONDS = 10
"""A process reads messages at once: one that does not within this time hangs."""

_STARTS_WITHIN = 30.0
"""Seconds that a new process gets in addition to those of its first call."""


class Restart(StrEnum):
    """Why a client process was replaced."""

    ENDED = "ended"
    """It ended: an assertion in librdkafka, or it was killed."""
    HUNG = "hung"
    """It did not answer within the time limit of a call."""
    MEMORY = "memory"
    """It used far more memory than after its first calls."""
    FAILING = "failing"
    """It could not reach the cluster several times in a row; a new client may."""


class ClientProcess:
    """A process with the clients of one cluster, started with the first call. For several threads."""

    def __init__(
        self,
        name: str,
        *,
        owner: str = "",
        on_restart: Callable[[Restart], None] = lambda _: None,
        growth_bytes: int | None = None,
        failures: int = _FAILURES,
        spares: list[Spare] | None = None,
    ) -> None:
        """``name`` is for errors, and for the log after ``owner``; ``on_restart`` is called at each restart.

        One that grows by ``growth_bytes`` is replaced; None stands for GROWTH_BYTES. One of ``spares`` is taken instead
        of a new process, as long as there are any.
        """
        self.name = name
        self._owner = owner
        self._on_restart = on_restart
        self.growth_bytes = _growth_bytes() if growth_bytes is None else growth_bytes
        self._failures = failures
        self._spares = [] if spares is None else spares
        self._lock = threading.RLock()
        self._clients: dict[str, Make] = {}
        self._closed = False
        self._running: _Running | None = None
        self._numbers = itertools.count()
        self._generations = itertools.count(1)
        self._ends_in_a_row = 0
        self._not_before = 0.0
        self._failed_in_a_row: Counter[str] = Counter()
        """By client: one that reaches the cluster says nothing of another."""
        self._patience = failures

    @property
    def generation(self) -> int:
        """The number of the present process, 0 while there is none."""
        running = self._running
        return 0 if running is None or running.ended else running.generation

    @property
    def pid(self) -> int | None:
        """The number of the process, None while there is none."""
        running = self._running
        return None if running is None else running.pid

    @property
    def memory(self) -> int | None:
        """The bytes that the process holds now (RSS), None while there is none."""
        running = self._running
        try:
            return None if running is None or running.ended else resident(running.pid)
        except OSError:
            return None

    def add(self, name: str, kind: str, settings: Mapping[str, Any]) -> Make:
        """Create a client of a ``kind`` of ``exporter.kafka.child``, also in later processes; an earlier one is closed.

        Returns what ``remove`` needs.
        """
        with self._lock:
            self._clients[name] = make = Make(name, kind, settings)
            if self._running is not None:
                self._running.send(make)
            return make

    def remove(self, client: Make) -> None:
        """Close a client, unless another one has taken its name."""
        name = client.name
        with self._lock:
            if self._clients.get(name) is not client:
                return
            del self._clients[name]
            del self._failed_in_a_row[name]
            if self._running is not None:
                self._running.send(Drop(name))

    def start(self) -> None:
        """Start the process now, so that the first call does not wait for it. Raises SourceError."""
        with self._lock:
            self._started()

    def call(
        self, name: str, method: str, *arguments: Any, within: float, generation: int | None = None
    ) -> tuple[Any, Notes, int]:
        """Return the result of a client's method, its notes, and the number of the process that answered.

        Raises SourceError as the client does. Also if the process ends, or does not answer ``within`` these seconds;
        then it is replaced. Also if the call is meant for the process of one ``generation``, and that process has
        ended. Raises ValueError where the configuration cannot be used.
        """
        with self._lock:
            if generation is not None and generation != self.generation:
                raise SourceError(
                    Reason.CLIENT_FAILED,
                    f"{self.name} ended in the middle of a poll; next step: none, a new one starts",
                )
            running = self._started()
            number = next(self._numbers)
            future = running.expect(number)
            running.send(Call(number, name, method, arguments, _EXPORTER.getEffectiveLevel()))
        if not running.answered:
            within += _STARTS_WITHIN
        try:
            answered = future.result(timeout=within)
        except FutureTimeoutError:
            self._replace(running, Restart.HUNG, f"gave no answer within {within:.0f} s")
            raise SourceError(
                Reason.CLIENT_FAILED,
                f"{self.name} gave no answer within {within:.0f} s and was ended; next step: none, a new one starts",
            ) from None
        except SourceError as error:
            if error.reason is not Reason.CLIENT_FAILED:
                self._record_answer(running)
            raise
        self._record_answer(running, answered.memory)
        return answered.result, answered.notes, running.generation

    def renew(self) -> None:
        """Replace the process where it leaks. Call it before a poll, when its state is not needed."""
        with self._lock:
            running = self._running
            if running is None or running.waited_for:
                return
            grown = running.memory - running.settled_memory
            if grown > self.growth_bytes:
                self._replace(running, Restart.MEMORY, f"holds {size(grown)} more than after its first calls")

    def reached(self, name: str, *, good: bool) -> None:
        """Take whether a client could reach the cluster; after too many failures the process is replaced."""
        with self._lock:
            if good:
                del self._failed_in_a_row[name]
                if not self._failed_in_a_row:
                    self._patience = self._failures
                return
            self._failed_in_a_row[name] += 1
            failed = self._failed_in_a_row[name]
            if failed < self._patience or self._running is None or self._running.waited_for:
                return
            self._failed_in_a_row.clear()
            # No longer than that: a client that stays blind would do so past the end of a long outage.
            self._patience = 2 * self._failures
            self._replace(self._running, Restart.FAILING, f"could not reach the cluster {failed} times in a row")

    def close(self) -> None:
        """End the process; calls under way fail, and so do later ones."""
        with self._lock:
            self._closed = True
            running, self._running = self._running, None
        if running is not None:
            running.end("was closed")

    def _started(self) -> _Running:
        if self._closed:
            raise SourceError(Reason.CLIENT_FAILED, f"{self.name} was closed; next step: none, the exporter ends")
        if self._running is not None and not self._running.ended:
            return self._running
        if (delay := self._not_before - time.monotonic()) > 0:
            detail = f"{self.name} ended, and a new one starts in {math.ceil(delay)} s"
            raise SourceError(
                Reason.CLIENT_FAILED, f"{detail}; next step: none, unless this goes on: then report what the log says"
            )
        child = self._spares.pop(0) if self._spares else None
        try:
            self._running = _Running(self.name, self._owner, next(self._generations), self._lost, child)
        except (OSError, RuntimeError) as error:  # no process, file or thread more
            self._wait_longer()
            raise SourceError(
                Reason.CLIENT_FAILED,
                f"{self.name} could not be started: {getattr(error, 'strerror', None) or error}; next step: allow this "
                "exporter more processes, files or memory",
            ) from None
        for make in self._clients.values():
            self._running.send(make)
        return self._running

    def _record_answer(self, running: _Running, memory: int | None = None) -> None:
        with self._lock:
            running.answered += 1
            self._ends_in_a_row = 0
            if memory is None:
                return
            if running.answered <= _SETTLED_CALLS:
                running.settled_memory = memory
            running.memory = memory

    def _wait_longer(self) -> None:
        """Start no process for a while: twice as long as after the end before."""
        self._not_before = time.monotonic() + min(_LONGEST_DELAY, 2.0**self._ends_in_a_row)
        self._ends_in_a_row += 1

    def _lost(self, running: _Running, how: str) -> None:
        """Take note that a process ended by itself."""
        self._replace(running, Restart.ENDED, how)

    def _replace(self, running: _Running, why: Restart, how: str) -> None:
        with self._lock:
            if self._running is not running:
                return
            self._running = None
            if why in (Restart.ENDED, Restart.HUNG):
                self._wait_longer()
        log.log(
            logging.INFO if why is Restart.FAILING else logging.WARNING,
            "%s%s %s: a new one starts",
            self._owner,
            self.name,
            how,
        )
        running.end(how)
        self._on_restart(why)


class _Running:
    """One process, until it ends."""

    def __init__(
        self, name: str, owner: str, generation: int, lost: Callable[[_Running, str], None], spare: Spare | None
    ) -> None:
        self.generation = generation
        self.answered = 0
        self.memory = self.settled_memory = 0
        self.ended = False
        self._name, self._owner = name, owner
        self._lost = lost
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        """Held while the connection is written to or closed: another file may be open by its number afterwards."""
        self._waiting: dict[int, Future[Answered]] = {}
        self._process: subprocess.Popen[bytes] | Spare
        self._process, ours = started() if spare is None else (spare, spare.socket)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _SEND_SECONDS, 0))
        self.pid = self._process.pid
        self._connection = Connection(ours.detach())
        self.send(Begin(_EXPORTER.getEffectiveLevel()))
        try:
            for work in (self._listen, self._log_stderr):
                threading.Thread(target=work, name=f"{name}, process {self.pid}", daemon=True).start()
        except RuntimeError:  # no thread more: nobody else would end the process
            self._process.kill()
            self._process.wait()
            if self._process.stderr is not None:
                self._process.stderr.close()
            raise

    @property
    def waited_for(self) -> bool:
        """Whether a call is under way."""
        return bool(self._waiting)

    def expect(self, number: int) -> Future[Answered]:
        """Return the future of the answer to a call."""
        with self._lock:
            future = self._waiting[number] = Future()
        return future

    def send(self, message: object) -> None:
        """Send a message. A process that is gone or hangs gets none, and its callers notice."""
        try:
            with self._sending:
                self._connection.send(message)
        except OSError:
            log.debug("%s%s: the process %d takes nothing", self._owner, self._name, self.pid)

    def end(self, how: str) -> None:
        """End the process at once, without saving anything; running calls fail with this reason."""
        self._process.kill()
        self._process.wait()
        self._fail(how)

    def _listen(self) -> None:
        """Take messages of the process until it ends."""
        try:
            while True:
                message = self._connection.recv()
                if isinstance(message, Logged):
                    self._log(message)
                else:
                    self._answer(message)
        except (EOFError, OSError):
            pass
        except Exception:  # whatever unpickling raises, as where other code was installed meanwhile
            log.exception("%s%s gave an answer that cannot be read, and is ended", self._owner, self._name)
            self._process.kill()
        how = end_of(self._process.wait())
        with self._sending:
            self._connection.close()
        self._lost(self, how)  # before the calls under way fail: the next call meets the delay
        self._fail(how)

    def _answer(self, message: Answered | Failed) -> None:
        with self._lock:
            future = self._waiting.pop(message.number, None)
        if future is None:
            return
        if isinstance(message, Answered):
            future.set_result(message)
        elif message.reason is None:
            future.set_exception(ValueError(message.detail))
        else:
            future.set_exception(SourceError(message.reason, message.detail))

    def _fail(self, how: str) -> None:
        self.ended = True
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            detail = f"{self._name} {how} while it was asked; next step: none, a new one starts"
            future.set_exception(SourceError(Reason.CLIENT_FAILED, detail))

    def _log(self, line: Logged) -> None:
        logger = logging.getLogger(line.logger)
        if logger.isEnabledFor(line.level):
            record = logger.makeRecord(line.logger, line.level, "", 0, line.text, (), None)
            record.exc_text = line.traceback
            logger.handle(record)

    def _log_stderr(self) -> None:
        """Log its standard error: C libraries write there, such as a failed assertion."""
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            for line in lines:
                log.warning("%s%s: %s", self._owner, self._name, line.decode(errors="replace").rstrip())


def _growth_bytes() -> int:
    limit = memory_limit()
    return GROWTH_BYTES if limit is None else min(GROWTH_BYTES, limit // 4)
