"""History: windows in memory -> Parquet spool files, each written whole or not at all.

The spool is what Spark ingests. Volume follows activity: a window is written only where a partition
advanced, restarted or could not be read; coverage and inventory prove the silence of the others.
"""

from exporter.history.recorder import History
from exporter.history.spool import (
    TABLES,
    HistoryError,
    Loss,
    Row,
    Spool,
    SpoolFile,
    finished_files,
    spool_schema,
    to_table,
)
from exporter.history.unwritten import HistoryCounts

__all__ = [
    "TABLES",
    "History",
    "HistoryCounts",
    "HistoryError",
    "Loss",
    "Row",
    "Spool",
    "SpoolFile",
    "finished_files",
    "spool_schema",
    "to_table",
]
