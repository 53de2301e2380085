"""What is told apart when a broker ends a handshake: here a listener that hangs up whenever it comes to it."""

from __future__ import annotations

import socket
from threading import Event, Thread

from exporter.kafka import tls

NOT_TLS = "the listener does not speak TLS"


def test_a_slow_listener_without_tls_is_recognised_by_who_has_the_patience() -> None:
    """One that has not hung up when the patience ends is not called plain; one that does before then is."""
    hangs_up = Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        message = (
            f"ssl://127.0.0.1:{server.getsockname()[1]}/bootstrap: SSL handshake failed: connection closed by peer"
        )

        def listen() -> None:
            for _ in range(2):
                connection, _ = server.accept()
                hangs_up.wait()
                connection.close()

        listening = Thread(target=listen)
        listening.start()
        hasty = tls.fault(message, {}, 0.05)
        hangs_up.set()
        assert tls.fault(message, {}, 60.0).what == NOT_TLS
        listening.join()
    assert hasty.what == "SSL handshake failed: connection closed by peer"
