"""`serve` where no broker answers: what lies in its folders, what comes to its web server, and how it ends."""

import ctypes
import json
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from exporter.domain.history.rows import Window
from exporter.history.spool import Spool
from exporter.history.tables import table_of
from tests.damage import damage
from tests.demo.broker import free_port
from tests.foreign import strays
from tests.integration.serving import Exporter
from tests.unit.expectations import by_wall, publish
from tests.waiting import until

ROW = Window("default", "orders", "id", 0, 300.0, 600.0, "e", "poll", records=1, last_advance=400.0, end_offset=1)
NO_USERS = "basic_auth_users: {}"
STALE = "topic_liveness_expectations_stale"
MONTH_AGO = time.time() - 30 * 86_400


@pytest.fixture(scope="module")
def exporter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exporter]:
    """An exporter that found in its history what no exporter wrote, and a gigabyte in place of the pointer."""
    folder = tmp_path_factory.mktemp("alone")
    spool, published = folder / "history" / "spool", folder / "history" / "published"
    Spool(folder / "history", "e").write_files("default", 300.0, [table_of([ROW])])
    strays(spool / "windows")
    rows = table_of([ROW])
    foreign = rows.set_column(rows.schema.get_field_index("partition"), "partition", pa.array(["zero"]))
    pq.write_table(foreign, spool / "windows" / "windows-foreign.parquet")
    for name in ("windows-torn.parquet", ".windows-killed.parquet.999999"):
        (spool / "windows" / name).write_bytes(b"PAR1")
        os.utime(spool / "windows" / name, (MONTH_AGO, MONTH_AGO))
    published.mkdir()
    damage(published / "current.json", "a gigabyte")
    (folder / "web.yml").write_text(NO_USERS)
    environment = {
        "TOPIC_LIVENESS_OVERRIDES": json.dumps([{"topics": ".*", "max_silence": "1h"}]),
        "TOPIC_LIVENESS_WEB__CONFIG_FILE": str(folder / "web.yml"),
    }
    with Exporter(folder, f"127.0.0.1:{free_port()}", **environment) as running:
        until(lambda: "topic_liveness_polls_total{" in running.metrics(), "the first poll")
        yield running


def test_a_spool_with_foreign_entries_is_served(exporter: Exporter) -> None:
    """Pipe, socket, device, folder and dead links hold up nothing; what a killed exporter left is removed with its age.

    A start reads no window, whatever is in it.
    """
    until(lambda: exporter.value("topic_liveness_upkeep_failures_total", step="spool") == 0, "its metrics")
    windows = exporter.history / "spool" / "windows"
    until(lambda: not (windows / ".windows-killed.parquet.999999").exists(), "the upkeep")
    assert "Traceback" not in exporter.log.read_text()


def test_a_damaged_pointer_is_said_and_a_good_set_stays_in_force(exporter: Exporter) -> None:
    """From the start, and again after a good set: page and metric show it, memory stays small, a line is logged."""

    def stale(value: int) -> None:
        until(lambda: exporter.value(STALE) == value, f"{STALE} {value}")

    pointer = exporter.history / "published" / "current.json"
    stale(1)
    assert re.search(r"Problem: .*current\.json", exporter.page("/").text)
    [peak] = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{exporter.process.pid}/status").read_text())
    assert int(peak) < 700_000
    assert exporter.log.read_text().count("current.json") == 1
    publish(exporter.history, by_wall(topic="orders", partition=None, as_of=time.time()))
    stale(0)
    damage(pointer, "a pipe")
    stale(1)
    page = exporter.page("/").text
    assert "Expectations as of " in page and "Problem: " in page


def test_a_web_configuration_that_turns_bad_is_reported_until_it_is_mended(exporter: Exporter) -> None:
    web = exporter.history.parent / "web.yml"
    for text, good in ((NO_USERS, 1), ("basic_auth_users: {alice: secret}", 0), (NO_USERS, 1)):
        web.write_text(text)
        until(lambda: exporter.value("topic_liveness_web_config_last_reload_successful") == good, text)  # noqa: B023
        assert exporter.page("/metrics").status_code == 200


def test_a_signal_that_another_thread_gets_ends_the_exporter_in_order(exporter: Exporter) -> None:
    """The kernel chooses the thread, and a wait of the main one goes on then: SIGTERM was lost, and with it windows.

    The last test of this file, for none has an exporter after it.
    """
    pid = exporter.process.pid

    def takes_it(thread: int) -> bool:
        [blocked] = re.findall(r"SigBlk:\s+(\w+)", Path(f"/proc/{pid}/task/{thread}/status").read_text())
        return not int(blocked, 16) >> (signal.SIGTERM - 1) & 1

    threads = [int(thread.name) for thread in Path(f"/proc/{pid}/task").iterdir()]
    other = next(thread for thread in threads if thread != pid and takes_it(thread))
    assert ctypes.CDLL(None).tgkill(pid, other, signal.SIGTERM) == 0
    assert exporter.process.wait(60) == 0
    assert "stopped" in exporter.log.read_text()
