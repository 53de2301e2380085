"""A running exporter over a spool with entries that no exporter wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from exporter.domain.history.rows import Window
from exporter.history.spool import Spool
from exporter.history.tables import columns_of
from tests.demo.broker import free_port
from tests.foreign import strays
from tests.integration.serving import Exporter, until

ROW = Window("default", "orders", "id", 0, 300.0, 600.0, "e", "poll", records=1, last_advance=400.0, end_offset=1)


def test_serve_starts_beside_them_and_ends_when_asked_to(tmp_path: Path) -> None:
    """Pipe, socket, device, folder and dead links hold up nothing; a start reads no window, whatever is in it.

    What a killed exporter left unfinished is removed and counted.
    """
    Spool(tmp_path / "history", "e").write("default", 300.0, [ROW])
    windows = tmp_path / "history" / "spool" / "windows"
    strays(windows)
    rows = columns_of([ROW]).table()
    foreign = rows.set_column(rows.schema.get_field_index("partition"), "partition", pa.array(["zero"]))
    pq.write_table(foreign, windows / "windows-foreign.parquet")
    (windows / "windows-torn.parquet").write_bytes(b"PAR1")
    unfinished = windows / ".windows-killed.parquet.999999"
    unfinished.write_bytes(b"PAR1")
    limit = json.dumps([{"topics": ".*", "max_silence": "1h"}])
    with Exporter(tmp_path, f"127.0.0.1:{free_port()}", TOPIC_LIVENESS_OVERRIDES=limit) as running:
        until(lambda: running.value("topic_liveness_upkeep_failures_total", step="spool") == 0, "its metrics")
        assert not unfinished.exists()
        assert running.end() == 0
    assert "Traceback" not in running.log.read_text()
