"""Fixtures that several kinds of tests share."""

import faulthandler
import gc
import logging
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.remote import Producer

from tests.demo import broker as brokers
from tests.demo.broker import Broker, resolve_kafka
from tests.programs import Call, cache_folder
from tests.workbench import Workbench
from tests.workers import ByFile, place

GOLDEN = Path(__file__).parent / "golden"

# How long an example takes says how busy the machine is, not whether it is right.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")

STDERR = pytest.StashKey[int]()
"""Standard error as it was before pytest captured it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the one way to rewrite golden files; ``make golden`` uses it."""
    parser.addoption("--golden-update", action="store_true", help="rewrite the files in tests/golden")


def pytest_configure(config: pytest.Config) -> None:
    """Take Ctrl-C as a terminal gives it: a shell script starts what it runs in the background with SIGINT ignored.

    Every child of this process would inherit that, and no test could interrupt one.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.stash[STDERR] = os.dup(2)
    if (worker := getattr(config, "workerinput", None)) is not None:
        # Between choosing a port and listening to it, another worker could take it.
        workers, number = worker["workercount"], int(worker["workerid"].removeprefix("gw"))
        brokers.PORTS = brokers.PORTS[number % workers :: workers]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest. Refuse tests of one name: xdist would run one of them."""
    names = Counter(item.nodeid for item in items)
    if twice := [name for name, count in names.items() if count > 1]:
        raise pytest.UsageError(f"more than one test has the name {twice[0]}: give each an id of its own")
    items.sort(key=place)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage meanwhile, and leave the tests and their modules, which stay, out of later collections."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFile:
    """Give each file of tests to one worker."""
    return ByFile(config, log)


def _ended_when_stuck(item: pytest.Item) -> Generator[None, object, object]:
    """End this worker if a phase of the test goes on long after the time limit of the test.

    pytest-timeout fails a hung test by an exception at the next line of Python: not one that is stuck in a library,
    nor a hung teardown of a test that failed. xdist counts the test as failed and starts another worker, which does
    the rest. A run without workers is left to hang: to end it would lose the rest.
    """
    if not hasattr(item.config, "workerinput"):
        return (yield)
    own = item.get_closest_marker("timeout")
    limit = own.args[0] if own else item.config.getoption("timeout") or float(item.config.getini("timeout"))
    faulthandler.dump_traceback_later(1.2 * limit + 2.0, exit=True, file=item.config.stash[STDERR])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """Bound the time of the fixtures."""
    return (yield from _ended_when_stuck(item))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Bound the time of the test itself."""
    return (yield from _ended_when_stuck(item))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Bound the time of tidying up, once more: a test that failed has no time limit left."""
    return (yield from _ended_when_stuck(item))


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


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    """Run ``topic-liveness`` in the test's folder within this process: what a process costs is its imports.

    Not a ``serve`` that gets beyond its settings: it changes the process.
    """
    from exporter.cli import run  # noqa: PLC0415 - few tests need it

    monkeypatch.chdir(tmp_path)

    def called(*arguments: str) -> subprocess.CompletedProcess[str]:
        code = run(arguments)
        shown = capfd.readouterr()
        return subprocess.CompletedProcess(arguments, code, shown.out, shown.err)

    return called


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
    return cache_folder()


@pytest.fixture(scope="session")
def kafka_jars(cache: Path) -> Path:
    return resolve_kafka(cache=cache, progress=print)


@pytest.fixture(scope="session")
def broker(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A real broker that all tests share; a test uses topics of its own and leaves the broker running."""
    with Broker(tmp_path_factory.mktemp("broker"), jars=kafka_jars) as running:
        yield running


@pytest.fixture(scope="session")
def workbench(broker: Broker) -> Workbench:
    return Workbench(broker.bootstrap)


@pytest.fixture
def without_kafka_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Client processes that start from now on find no kafka-python."""
    (tmp_path / "absent").mkdir()
    (tmp_path / "absent" / "kafka.py").write_text("raise ImportError\n")
    monkeypatch.syspath_prepend(tmp_path / "absent")  # which they get
