"""Fixtures that several kinds of tests share."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from exporter.demo.broker import Broker, resolve_kafka
from tests.programs import cache_folder
from tests.workbench import Workbench

GOLDEN = Path(__file__).parent / "golden"

# How long an example takes says how busy the machine is, not whether it is right.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the one way to rewrite golden files; ``make golden`` uses it."""
    parser.addoption("--golden-update", action="store_true", help="rewrite the files in tests/golden")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with a file in tests/golden, or rewrite that file under --golden-update."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--golden-update"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"{path} is missing; `make golden` writes it"
        assert text == path.read_text(encoding="utf-8"), f"{path} differs; if that is meant, `make golden` rewrites it"

    return check


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """Put the logging of this process back: a command that a test runs in it sets up its own.

    Its handler would write to the stream that pytest captured with, which is closed by the end.
    """
    root, own = logging.getLogger(), logging.getLogger("exporter")
    handlers, levels = root.handlers[:], (root.level, own.level)
    yield
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    own.setLevel(levels[1])
    logging.captureWarnings(capture=False)


@pytest.fixture(scope="session")
def cache() -> Path:
    """The folder of downloads, the same one that the product uses."""
    return cache_folder()


@pytest.fixture(scope="session")
def kafka_jars(cache: Path) -> Path:
    """Jars of the Kafka version the tests run against; the first run downloads them."""
    return resolve_kafka(cache=cache, progress=print)


@pytest.fixture(scope="session")
def broker(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A real broker that all tests share; a test uses topics of its own and leaves the broker running."""
    with Broker(tmp_path_factory.mktemp("broker"), jars=kafka_jars) as running:
        yield running


@pytest.fixture(scope="session")
def workbench(broker: Broker) -> Workbench:
    """Makes topics and records on the shared broker."""
    return Workbench(broker.bootstrap)
