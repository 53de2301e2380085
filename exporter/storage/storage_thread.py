"""Calls to storage in a thread of their own, so that nobody waits for storage that hangs."""

import errno
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

ANSWER_SECONDS = 300.0
"""So long a call may take: several times the longest that object storage takes for a request and its repetitions,
which is under a minute. A file system that hangs gives no answer at all."""

T = TypeVar("T")


class StorageThread:
    """Runs calls one after the other. One that hangs holds up the others, for nothing else can end it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._began: float | None = None
        """Monotonic time at which the present call began, None where there is none."""

    @property
    def hangs(self) -> bool:
        """Whether the present call takes longer than any call may."""
        began = self._began
        return began is not None and time.monotonic() - began > ANSWER_SECONDS

    @property
    def busy(self) -> bool:
        """Whether a call is under way."""
        return self._began is not None

    def begin(self, call: Callable[[], T]) -> Future[T]:
        """Have a call made. Raises OSError where there can be no thread."""
        future: Future[T] = Future()
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:
                    raise OSError(errno.EAGAIN, str(error)) from None
                self._thread = thread
        self._calls.put((future, call))
        return future

    def call(self, call: Callable[[], T], seconds: float = ANSWER_SECONDS) -> T:
        """Return the result of a call. Raises what it raises, and TimeoutError (ETIMEDOUT) where it takes longer."""
        future = self.begin(call)
        try:
            return future.result(0.0 if self.hangs else seconds)
        except TimeoutError:
            if future.done():
                raise
            future.cancel()
            raise hang_error() from None

    def _run(self) -> None:
        while True:
            future, call = self._calls.get()
            if not future.set_running_or_notify_cancel():
                continue
            self._began = time.monotonic()
            try:
                result = call()
            except BaseException as error:  # noqa: BLE001 - whoever waits for it raises it
                self._began = None
                future.set_exception(error)
            else:
                self._began = None
                future.set_result(result)
            del future, call


def hang_error() -> OSError:
    """Return the error of storage that hangs."""
    return OSError(errno.ETIMEDOUT, "the storage does not answer")
