"""History: windows in memory -> Parquet spool files, each written whole or not at all.

The spool is what Spark ingests. Volume follows activity: a window is written only where a partition
advanced, restarted or could not be read; coverage and inventory prove the silence of the others.
"""

from exporter.history.progress import Progress
from exporter.history.recall import last_advances
from exporter.history.seam import FirstPolls
from exporter.history.spool import HistoryError, Loss, Row, Spool, finished_files, spool_schema, to_table
from exporter.history.windows import History, HistoryCounts

__all__ = [
    "FirstPolls",
    "History",
    "HistoryCounts",
    "HistoryError",
    "Loss",
    "Progress",
    "Row",
    "Spool",
    "finished_files",
    "last_advances",
    "spool_schema",
    "to_table",
]
