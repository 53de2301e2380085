"""A process with Kafka clients: ``python -P -m exporter.kafka.child FD``, started by ``ClientProcess``.

librdkafka aborts its process when one of its assertions fails, so the exporter does not load it. This process ends when
the exporter closes the other end of the socket.
"""

from __future__ import annotations

import logging
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any, Protocol

from exporter.clock import SystemClock
from exporter.domain.arrays import Offsets, Rows
from exporter.domain.polls.answers import Answers
from exporter.domain.polls.metadata import Membership, Metadata
from exporter.domain.polls.readings import Reason
from exporter.domain.ports import METADATA_SECONDS, Extents, SourceError
from exporter.kafka.connect_result import ConnectResult
from exporter.kafka.connectivity import check_address
from exporter.kafka.kafka_python_answers import KafkaPythonError
from exporter.kafka.messages import Answered, BatchesRefused, Begin, Call, Drop, Failed, Logged, Make, Notes
from exporter.kafka.poll_source import PollSource
from exporter.kafka.source import KafkaSource
from exporter.memory import resident, share_one_arena, trim_memory

log = logging.getLogger(__name__)

IDLE_SECONDS = 1.5


class _Client(Protocol):
    """The target of calls. Each client has its own thread."""

    def notes(self) -> Notes: ...

    def when_idle(self) -> None:
        """Finish deferred work, after IDLE_SECONDS without a call."""

    def close(self) -> None: ...


class _Polls:
    """A poll source. It returns metadata only where it differs from what the exporter has."""

    def __init__(
        self,
        *,
        chunk_size: int,
        calls_in_flight: int,
        metadata_seconds: float = METADATA_SECONDS,
        poll_interval: float = 0.0,
        **settings: Any,
    ) -> None:
        clock = SystemClock()
        source = KafkaSource(clock=clock, chunk_size=chunk_size, calls_in_flight=calls_in_flight, **settings)
        self._source = PollSource(
            source,
            clock,
            chunk_size=chunk_size,
            calls_in_flight=calls_in_flight,
            metadata_seconds=metadata_seconds,
            poll_interval=poll_interval,
        )
        self._exporter_copy: Metadata | None = None
        """The metadata that the exporter has."""
        self._exposed = source.exposed

    def exposed(self) -> tuple[str, ...]:
        return self._exposed

    def metadata(
        self, fresh: bool, doubted: Collection[str], before: Metadata | None, refused: BatchesRefused | None
    ) -> Metadata | None:
        if refused is not None:
            self._source.refuse_batches(refused)
        if before is not None:
            # From an earlier process: topics that cannot be described now keep their partitions.
            self._exporter_copy = before
            self._source.resume_from(before)
        found = self._source.metadata(fresh=fresh, doubted=doubted)
        if found is self._exporter_copy:
            return None
        self._exporter_copy = found
        return found

    def earliest(self, rows: Rows) -> Answers:
        return self._source.earliest(rows)

    def latest(self, rows: Rows) -> Answers:
        return self._source.latest(rows)

    def max_timestamp(self, rows: Rows, earliest: Offsets, latest: Offsets) -> Answers:
        return self._source.max_timestamp(rows, earliest, latest)

    def notes(self) -> Notes:
        return Notes(
            {"lookups": self._source.lookups()},
            self._source.max_timestamp_supported(),
            self._source.batched_lookups_trusted,
            self._source.batches_refused,
        )

    def when_idle(self) -> None:
        self._source.when_idle()

    def close(self) -> None:
        self._source.close()


class _Source:
    """A source of offsets, times and consumer groups."""

    def __init__(self, **settings: Any) -> None:
        self._source = KafkaSource(clock=SystemClock(), **settings)

    def exposed(self) -> tuple[str, ...]:
        return self._source.exposed

    def metadata(self) -> Metadata:
        return self._source.metadata()

    def starts(self, membership: Membership) -> Answers:
        return self._source.starts(membership)

    def ends(self, membership: Membership) -> Answers:
        return self._source.ends(membership)

    def max_timestamp(self, membership: Membership, extents: Extents) -> Answers:
        return self._source.max_timestamp(membership, extents)

    def by_time(self, membership: Membership, rows: Rows, milliseconds: Offsets) -> Answers:
        return self._source.by_time(membership, rows, milliseconds)

    def list_groups(self) -> Any:
        return self._source.groups.list_groups()

    def describe(self, names: Iterable[str]) -> Any:
        return self._source.groups.describe(names)

    def committed(self, names: Iterable[str]) -> Any:
        return self._source.groups.committed(names)

    def notes(self) -> Notes:
        counts = {"lookups": self._source.lookups(), "requests": dict(self._source.groups.counts)}
        return Notes(counts, self._source.max_timestamp_supported())

    def when_idle(self) -> None:
        pass

    def close(self) -> None:
        self._source.close()


class _AddressCheck:
    """Connects to addresses, each through a separate connection."""

    def __init__(self, **settings: Any) -> None:
        self._settings = settings

    def check(self, address: str) -> ConnectResult:
        return check_address(address=address, **self._settings)

    def notes(self) -> Notes:
        return Notes()

    def when_idle(self) -> None:
        pass

    def close(self) -> None:
        pass


def _tiers(**settings: Any) -> _Client:
    from exporter.kafka.tiered_offsets import TierClient  # noqa: PLC0415 - the imports take memory, and few need it

    return TierClient(**settings)


def _inspections(**settings: Any) -> _Client:
    from exporter.kafka.producers_log_dirs import InspectionClient  # noqa: PLC0415 - likewise

    return InspectionClient(**settings)


_KINDS: Mapping[str, Callable[..., _Client]] = {
    "polls": _Polls,
    "source": _Source,
    "address-check": _AddressCheck,
    "tiers": _tiers,
    "inspections": _inspections,
}


class _Forward(logging.Handler):
    """Sends log lines to the exporter, which knows the format of its log."""

    def __init__(self, send: Callable[[Logged], None]) -> None:
        super().__init__()
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        trace = "".join(traceback.format_exception(*record.exc_info)).rstrip() if record.exc_info else None
        self._send(Logged(record.name, record.levelno, record.getMessage(), trace))


class _Child:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self._workers: dict[str, queue.SimpleQueue[Call | None]] = {}

    def run(self) -> None:
        """Answer calls until the exporter closes the connection."""
        begin: Begin = self._connection.recv()
        logging.basicConfig(level=max(begin.level, logging.WARNING), handlers=[_Forward(self._send)], force=True)
        logging.getLogger("exporter").setLevel(begin.level)
        logging.captureWarnings(capture=True)
        while True:
            message: Make | Drop | Call = self._connection.recv()
            if isinstance(message, Make):
                self._close(message.name)
                calls = self._workers[message.name] = queue.SimpleQueue()
                threading.Thread(target=self._serve, args=(message, calls), name=message.name, daemon=True).start()
            elif isinstance(message, Drop):
                self._close(message.name)
            elif message.name in self._workers:
                logging.getLogger("exporter").setLevel(message.level)
                self._workers[message.name].put(message)
            else:
                self._send(Failed(message.number, Reason.CLIENT_FAILED, "the client was closed"))

    def _close(self, name: str) -> None:
        """Let the client of this name close after the calls that it has got."""
        if name in self._workers:
            self._workers.pop(name).put(None)

    def _serve(self, make: Make, calls: queue.SimpleQueue[Call | None]) -> None:
        made: list[_Client] = []
        while (call := _next(calls, made)) is not None:
            self._answer(call, make, made)
            del call  # arguments and answers of a large cluster are many MiB: neither is kept until the next call
            trim_memory()
        for client in made:
            client.close()

    def _answer(self, call: Call, make: Make, made: list[_Client]) -> None:
        """Send the result of a call. The first call creates the client, or sends the reason of a failure."""
        try:
            if not made:
                made.append(_KINDS[make.kind](**make.settings))
            [client] = made
            result = getattr(client, call.method)(*call.arguments)
            self._send(Answered(call.number, result, client.notes(), resident()))
        except SourceError as error:
            self._send(Failed(call.number, error.reason, error.detail))
        except (ValueError, KafkaPythonError) as error:
            self._send(Failed(call.number, None, str(error)))
        except Exception as error:
            log.exception("a call of a Kafka client failed with an internal error")
            # Its text may quote anything, also a secret.
            detail = f"an internal error ({type(error).__name__}); the log has its traceback"
            self._send(Failed(call.number, Reason.OTHER, f"{detail}; next step: report it"))

    def _send(self, message: object) -> None:
        with self._sending:
            self._connection.send(message)


def _next(calls: queue.SimpleQueue[Call | None], made: Sequence[_Client]) -> Call | None:
    """Return the next call. While it waits, the client finishes deferred work."""
    try:
        return calls.get(timeout=IDLE_SECONDS if made else None)
    except queue.Empty:
        pass
    try:
        for client in made:
            client.when_idle()
    except Exception:
        log.exception("a client failed while no call was under way")
    return calls.get()


def main() -> None:
    """Serve the exporter at the other end of the socket whose descriptor is the argument."""
    # A terminal and a service manager send signals to all processes of a group: the exporter must end first.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    share_one_arena()
    try:
        _Child(Connection(int(sys.argv[1]))).run()
    except (EOFError, OSError):
        # At once: closing a client may wait for a broker, and may fail an assertion.
        os._exit(0)


if __name__ == "__main__":
    main()
