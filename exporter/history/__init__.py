"""History: windows in memory, written as Parquet spool files, each whole or not at all.

Spark ingests the spool. Volume follows activity: a window is written only where a partition advanced, restarted or
could not be read. Coverage and inventory prove the silence of the others.
"""

from exporter.history.columns import Row
from exporter.history.recorder import History
from exporter.history.spool import (
    TABLES,
    HistoryError,
    Loss,
    Spool,
    finished_files,
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
    "finished_files",
]
