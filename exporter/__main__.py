"""The command ``topic-liveness``, and ``python -m exporter``."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

SPARES = 2
"""Processes with the Kafka clients of the first cluster."""


def main(program: str | None = None) -> NoReturn:
    """Run the command line; ``program`` is what the person typed."""
    _open_closed_streams()
    # prometheus_client would put its values into files there, and show those of processes that ended.
    os.environ.pop("PROMETHEUS_MULTIPROC_DIR", None)
    if sys.argv[1:2] == ["serve"] and not {"-h", "--help"} & set(sys.argv):
        # Before settings and pages are imported: clients need neither, and would hold them too. All need these modules.
        import asyncio  # noqa: F401, PLC0415
        import ssl  # noqa: F401, PLC0415

        from exporter.kafka import credentials, remote, remote_kafka_python  # noqa: F401, PLC0415
        from exporter.kafka.spares import fork_spares  # noqa: PLC0415
        from exporter.memory import share_one_arena  # noqa: PLC0415

        share_one_arena()
        fork_spares(SPARES)
    from exporter import cli  # noqa: PLC0415 - as above

    cli.main(*([] if program is None else [program]))


def _open_closed_streams() -> None:
    """Open standard streams that the parent closed (``2>&-``): other files would take their numbers."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")


if __name__ == "__main__":
    main("python -m exporter")
