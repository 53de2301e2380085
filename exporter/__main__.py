"""The command ``topic-liveness``, and ``python -m exporter``."""

import os
import sys
from importlib.abc import MetaPathFinder
from typing import NoReturn


def main(program: str | None = None) -> NoReturn:
    """Run the command line; ``program`` is what the person typed."""
    _open_closed_streams()
    # prometheus_client would put its values into files there, and show those of processes that ended.
    os.environ.pop("PROMETHEUS_MULTIPROC_DIR", None)
    # Processes that this one starts import nothing from the folder in which a person happens to be.
    os.environ["PYTHONSAFEPATH"] = "1"
    sys.meta_path.insert(0, _NoPandas())
    from exporter import cli  # noqa: PLC0415 - client processes import this module, and need no command

    cli.main(*([] if program is None else [program]))


class _NoPandas(MetaPathFinder):
    """Hides pandas, which pyarrow imports with the first array that it makes where Spark's packages brought it.

    That is half a second and 30 MiB, and nothing here uses it.
    """

    def find_spec(self, name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name=name)


def _open_closed_streams() -> None:
    """Open standard streams that the parent closed (``2>&-``): other files would take their numbers."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")


if __name__ == "__main__":
    main("python -m exporter")
