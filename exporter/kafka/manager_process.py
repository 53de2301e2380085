"""One process with Kafka clients, until it is ended: how it starts, what it serves, and how it is called."""

import gc
import logging
import logging.handlers
import multiprocessing
import os
import secrets
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.managers import BaseManager, BaseProxy
from multiprocessing.process import BaseProcess
from operator import attrgetter
from pkgutil import resolve_name
from types import SimpleNamespace
from typing import Any

from exporter.domain.polls.readings import Reason
from exporter.domain.ports import SourceError

log = logging.getLogger(__name__)


class _Manager(BaseManager):
    client: Callable[..., Any]


_Manager.register("client", proxytype=BaseProxy)


class ManagerProcess:
    """One process, until it is ended."""

    def __init__(self) -> None:
        """Start it; it is not waited for. Raises OSError or RuntimeError where this host allows no more."""
        self.answered = False
        """Whether a call has ended."""
        self.overdue: str | None = None
        """How long a call was waited for, if it was too long."""
        self.proxies: dict[Any, BaseProxy] = {}
        """By ``RemoteClient``."""
        self._lock, self._reaping = threading.Lock(), threading.Lock()
        self._listening = threading.Event()
        self._manager: _Manager | None = None
        # Abstract: no file is left behind, and none can be kept from being made.
        self._address, self._key = f"\0topic-liveness-{secrets.token_hex(16)}", secrets.token_bytes(32)
        lines, theirs = multiprocessing.Pipe(duplex=False)
        level = logging.getLogger("exporter").getEffectiveLevel()
        self.process = multiprocessing.get_context("spawn").Process(
            target=_serve, args=(self._address, self._key, theirs, level), daemon=True
        )
        with theirs:  # the process gets a copy
            threading.Thread(target=self._take_lines, args=(lines,), name="log of a Kafka client", daemon=True).start()
            resource_tracker.ensure_running()  # if `start` started it, these signals would pass again (Python 3.11)
            # A terminal and a service manager send signals to all processes of a group: the exporter must end first.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
            try:
                self.process.start()
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)

    @property
    def outcome(self) -> str:
        """How it ended, as the end of a sentence."""
        code = self.process.exitcode or 0
        by = f"was ended by signal {-code} ({signal.strsignal(-code)})" if code < 0 else f"ended with exit code {code}"
        return self.overdue or by

    @property
    def alive(self) -> bool:
        """Whether it has not ended by itself."""
        with self._reaping:
            return self.process.is_alive()

    def proxy_of(self, client: Any) -> BaseProxy:
        """Return the client in the process, which is made with the first call."""
        with self._lock:
            if self._manager is None:
                self._listening.wait()
                manager = _Manager(self._address, self._key)
                manager.connect()
                self._manager = manager
            if client not in self.proxies:
                self.proxies[client] = self._manager.client(client.kind, client.settings)
            return self.proxies[client]

    @contextmanager
    def end_after(self, seconds: float) -> Iterator[None]:
        """End the process where what is done meanwhile takes longer."""

        def end() -> None:
            self.overdue = f"gave no answer within {seconds:.0f} s"
            self.process.kill()

        timer = threading.Timer(seconds, end)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def end(self) -> None:
        """End the process at once, without saving anything; running calls fail."""
        with self._reaping:
            self.process.kill()
            self.process.join()
        self.proxies.clear()
        self._manager = None
        # The standard library keeps a connection for each thread that called, as long as the address is there.
        BaseProxy._address_to_local.pop(self._address, None)  # noqa: SLF001

    def _take_lines(self, lines: Connection) -> None:
        """Log what the process logs, until it ends; None says that it listens."""
        with suppress(EOFError, OSError), lines:
            while True:
                record = lines.recv()
                if record is None:
                    self._listening.set()
                elif (logger := logging.getLogger(record.name)).isEnabledFor(record.levelno):
                    logger.handle(record)
        self._listening.set()  # nobody waits any longer


class ClientSettingsError(SourceError, ValueError):
    """A client cannot be made: at the start by a wrong configuration, later as a call that failed."""

    def __str__(self) -> str:
        return self.detail


class _ServedClient:
    """A client in this process, made when it is called first. Not for several threads, unless the client is."""

    def __init__(self, kind: str, settings: Mapping[str, Any]) -> None:
        """``kind`` is ``module:class``."""
        self._kind, self._settings = kind, settings
        self._client: Any = None

    def call(self, path: str, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
        """Return what a method or attribute of the client gives.

        Raises SourceError or ValueError, and ClientSettingsError where the client cannot be made.
        """
        try:
            if self._client is None:
                self._client = resolve_name(self._kind)(**self._settings)
            found = attrgetter(path)(self._client)
            return found(*arguments, **keywords) if callable(found) else found
        except (SourceError, ValueError) as error:
            if self._client is None and not isinstance(error, SourceError):
                raise ClientSettingsError(Reason.OTHER, str(error)) from None
            raise error.with_traceback(None) from None
        except Exception as error:
            log.exception("a call of a Kafka client failed with an internal error")
            # Its text may quote anything, also a secret.
            detail = f"an internal error ({type(error).__name__}); the log has its traceback; next step: report it"
            raise SourceError(Reason.OTHER, detail) from None

    def close(self) -> None:
        """Close the client."""
        if self._client is not None:
            self._client.close()


def _serve(address: str, key: bytes, lines: Connection, level: int) -> None:
    """Serve the exporter, in the process: clients are made and called through a manager until the exporter ends."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    handler = logging.handlers.QueueHandler(SimpleNamespace(put_nowait=lines.send))
    handler.setFormatter(logging.Formatter("%(message)s"))
    logging.basicConfig(level=max(level, logging.WARNING), handlers=[handler], force=True)
    logging.getLogger("exporter").setLevel(level)
    logging.captureWarnings(capture=True)
    # A look-up of 100,000 partitions makes as many objects, which live for a moment and form no cycles. With Python's
    # own threshold a sixth of the CPU went into looking through those that stay.
    gc.set_threshold(100_000)
    _Manager.register("client", callable=_ServedClient)
    server = _Manager(address, key).get_server()
    lines.send(None)
    server.serve_forever()


def _end_with(parent: BaseProcess) -> None:
    """End this process when its parent does, also where that is killed: closing a client might wait for a broker."""
    parent.join()
    os._exit(0)
