"""History in object storage: a real S3 server, which is killed, comes back and takes rights away."""

import json
import re
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO

import pytest

from exporter.delivery.send import has_reached_all
from exporter.domain.exit_codes import ExitCode
from exporter.domain.history.rows import Window
from exporter.history.cluster_states import read_state
from exporter.history.published import Expectations, read_topic_rows
from exporter.history.spool import Spool, list_finished_files
from exporter.history.tables import read_columns
from exporter.storage.files import files_in, open_file, put
from spark_rollups.store.lock import Lease, LockTakenError
from tests.integration.receiving import Hook, http_server, write_report
from tests.integration.serving import Exporter
from tests.programs import Call
from tests.s3 import SECRET, S3Server, s3_for_all
from tests.unit.expectations import MONDAY, by_clock, publish
from tests.unit.history_bench import ORDERS, Bench
from tests.waiting import until

NOWHERE = "127.0.0.1:1"

ANY = re.compile(r".*")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_for_all(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def s3(server: S3Server) -> Iterator[S3Server]:
    """The server at work, whatever a test does to it."""
    yield server
    server.restart()


class StoredBench(Bench):
    """A poller with history in object storage behind it."""

    def __init__(self, s3: S3Server, name: str) -> None:
        super().__init__(s3.folder_of(name), spool=Spool(s3.location(name), "exporter-1"))

    def wait(self) -> None:
        """Go on: these tests see that no poll waits for storage."""


def test_an_object_is_there_whole_or_not_at_all_when_the_server_is_killed(s3: S3Server) -> None:
    """Writes of 6 MB are under way each time it is killed: what counts as written is there, each whole."""
    folder, written, over = s3.location("killed"), list[str](), threading.Event()

    def content_of(name: str) -> bytes:
        return name.encode() * 1_500_000

    def write() -> None:
        number = 0
        while not over.is_set():
            number += 1
            name = f"{number:04d}"
            try:
                put(folder / name, partial(_write, content_of(name)))
            except OSError:
                continue
            written.append(name)

    writer = threading.Thread(target=write)
    writer.start()
    for _ in range(3):
        wanted = len(written) + 3
        until(lambda: len(written) >= wanted, "three writes")  # noqa: B023
        s3.restart()
    over.set()
    writer.join()
    there = files_in(folder, ANY)
    assert set(written) <= {file.path.name for file in there}
    for file in there:
        with open_file(file.path) as content:
            assert content.read() == content_of(file.path.name)


def _write(content: bytes, file: IO[bytes]) -> None:
    file.write(content)


def test_history_waits_in_memory_while_storage_is_gone_or_refuses_and_is_written_afterwards(
    s3: S3Server, caplog: pytest.LogCaptureFixture
) -> None:
    """No poll waits for it; each failure is counted by its reason, and a refusal is one line with what to do.

    Nothing half written is left behind, and afterwards each window is there once.
    """
    bench = StoredBench(s3, "gone")
    bench.poll()
    bench.poll(gained=1)
    until(lambda: bench.rows("inventory") != [], "what the first poll had another thread write")
    s3.kill()
    for _ in range(3):
        bench.poll(after=300.0, gained=1)
    until(lambda: bench.counted("write_failures"), "a write that failed")
    (reason,) = bench.counted("write_failures")
    assert reason.startswith("the storage does not answer")
    s3.start("--readonly")
    bench.poll(after=300.0, gained=1)
    message = "cannot be written to s3://history/gone/spool: the storage refuses access (ACCESS_DENIED)"
    until(lambda: message in caplog.text, "a write that was refused")
    assert "Free space or give write access there." in caplog.text and SECRET not in caplog.text
    assert bench.rows("windows") == []
    s3.restart()
    bench.history.flush(bench.clock.now())
    assert [row["records"] for row in bench.rows("windows")] == [1, 1, 1, 1, 1]
    assert bench.counted("windows_dropped") == {}


def test_storage_that_does_not_answer_holds_up_no_poll_and_a_read_for_seconds(s3: S3Server) -> None:
    """It takes requests and is silent: a window ends at once, a read is given up, and all is there once it answers."""
    bench = StoredBench(s3, "silent")
    note = s3.location("silent") / "note"
    put(note, partial(_write, b"x"))
    bench.poll()
    bench.poll(gained=1)
    s3.stop_answering()
    begun = time.monotonic()
    bench.poll(after=300.0, gained=1)
    assert time.monotonic() - begun < 2
    with pytest.raises(TimeoutError, match="the storage does not answer"):
        open_file(note)
    assert time.monotonic() - begun < 60
    s3.answer()
    bench.history.flush(bench.clock.now())
    assert [row["records"] for row in bench.rows("windows")] == [1, 1]


def test_what_was_written_to_object_storage_is_read_at_the_next_start(s3: S3Server) -> None:
    bench = StoredBench(s3, "read")
    bench.poll()
    bench.poll(gained=3)
    bench.history.flush(bench.clock.now())
    folder = s3.location("read")
    files = list_finished_files(folder / "spool")
    assert {file.path.parent.name for file in files} == {"windows", "coverage", "inventory"}
    table = read_columns(bench.spool.target("c", 1_000_050.0, "windows"), Window, ["records"])
    assert table.column("records").to_pylist() == [3]
    kept = read_state(folder, "c", "exporter-1")
    assert kept is not None and ORDERS in kept.layout
    put(folder / "published" / "ingested.txt", lambda file: file.write(files[0].name.encode()))
    assert bench.spool.expire(older_than=files[0].written + 3600) == 1
    assert files[0].path not in {file.path for file in list_finished_files(folder / "spool")}
    assert set(bench.spool.shrink(1)) == {"c"}
    assert list_finished_files(folder / "spool") == []


def test_expectations_are_read_from_object_storage_and_stay_in_force_while_it_is_gone(s3: S3Server) -> None:
    publish(s3.folder_of("published-there"), by_clock([1.0] * 168))
    expectations = Expectations(s3.location("published-there"))
    assert expectations.refresh()
    assert expectations.published is not None and len(expectations.published.rows) == 1
    found = read_topic_rows(s3.location("published-there"), "orders")
    assert found is not None and found.published.as_of == MONDAY
    s3.kill()
    assert not expectations.refresh()
    assert len(expectations.published.rows) == 1
    assert "the storage does not answer" in str(expectations.problem)
    s3.start()
    assert not expectations.refresh()
    assert expectations.problem is None


def test_the_last_report_is_sent_once_and_its_record_lies_beside_it(s3: S3Server, tmp_path: Path, call: Call) -> None:
    url, config, hook = tmp_path / "url", tmp_path / "prod.yaml", Hook([], [(503, {}, "restarting")])
    delivery = {"recipients": [{"url": {"file": str(url)}}]}
    config.write_text(json.dumps({"delivery": delivery, "history": {"folder": "s3://history/sent"}}))
    for day in ("2026-02-24", "2026-03-03"):
        write_report(s3.folder_of("sent") / "published" / "reports" / day)
    with http_server(hook) as address:
        url.write_text(address.replace("http", "json"))
        refused, sent, again = (call("deliver", "--config", str(config)) for _ in range(3))
        older = "s3://history/sent/published/reports/2026-02-24"
        named = call("deliver", "--config", str(config), "--report", older)
    assert refused.returncode == ExitCode.FOUND and "503" in refused.stderr
    assert (sent.returncode, sent.stdout) == (0, f"delivered to {url}\n"), sent.stderr
    assert (again.returncode, again.stdout) == (0, "1 delivered before, not sent again\n"), again.stderr
    assert SECRET not in refused.stderr + sent.stdout + sent.stderr
    assert named.returncode == 0 and len(hook.bodies) == 3, named.stderr
    assert [one["filename"] for one in hook.bodies[1]["attachments"]] == ["liveness.html"]
    assert has_reached_all(s3.location("sent") / "published" / "reports" / "2026-03-03")
    assert Expectations(s3.location("sent")).find_report_time(has_reached_all) is not None


def test_one_process_at_a_time_has_a_lease(s3: S3Server) -> None:
    """Of two that come at once one gets it; the other learns of that once it sees it renewed; let go, it is free."""
    folder, held, refused = s3.location("lease"), list[Lease](), list[str]()

    def take() -> None:
        try:
            held.append(Lease(folder, renew_seconds=0.5, expiry_seconds=8.0))
        except LockTakenError as error:
            refused.append(str(error.strerror))

    both = [threading.Thread(target=take) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    (lease,) = held
    assert len(refused) == 1 and refused[0].startswith("process ")
    assert lease.sure
    lease.close()
    assert files_in(folder, ANY) == []
    Lease(folder).close()


def test_refused_credentials_end_a_start_with_one_line_and_are_not_in_it(s3: S3Server, tmp_path: Path) -> None:
    wrong = {"AWS_SECRET_ACCESS_KEY": "wrong-and-not-to-be-seen", "TOPIC_LIVENESS_HISTORY__FOLDER": "s3://history/none"}
    with Exporter(tmp_path, NOWHERE, **wrong) as exporter:
        assert exporter.process.wait(60) == 2
    (line,) = [line for line in exporter.log.read_text().splitlines() if line.startswith("Error")]
    assert line == (
        "Error: history.folder 's3://history/none' must be a folder that this process can write to, and "
        "'s3://history/none/spool/windows' is not: the storage refuses access (SIGNATURE_DOES_NOT_MATCH). Give it "
        "write access there, or set history.folder to another folder."
    )
    assert "not-to-be-seen" not in exporter.log.read_text()
    assert not s3.folder_of("none").exists()
