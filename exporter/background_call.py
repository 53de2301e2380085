"""A blocking call whose caller does not wait for it."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def call_in_thread(call: Callable[[], T], name: str) -> Future[T]:
    """Run a blocking call in a daemon thread, so that one without an answer blocks nothing, nor the end of Python."""
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:  # noqa: BLE001 - the caller gets whatever it is
            # Its frames hold a client, and would keep a refused one alive and connecting.
            outcome.set_exception(error.with_traceback(None))

    threading.Thread(target=run, name=name, daemon=True).start()
    return outcome
