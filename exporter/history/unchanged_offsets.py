"""Since when each end offset is unchanged, by the inventory in the spool."""

from __future__ import annotations

import functools
import logging
import math
import operator
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from exporter.domain import Coverage, Inventory, TopicPartition
from exporter.domain.activity import UnchangedOffset
from exporter.history.spool import STAMP, TABLES, ForeignFileError, file_stem, finished_files, read_columns
from exporter.storage import Location

log = logging.getLogger(__name__)

_NEVER_NULL = ("cluster", "topic", "partition", "exporter", "observed_at", "deleted")
_NAMES = (*_NEVER_NULL, "topic_id", "latest_offset")

_MOST_FILES = 2**14
"""At most so many files are read, the newest ones: under a minute. The others only shorten a silence."""

_BREAK_SECONDS = 7200.0
"""Coverage is written hourly or more often. During a longer gap the clock may have been set."""


def unchanged_since(
    history: Location, wanted: Callable[[str, str], bool]
) -> Mapping[str, Mapping[TopicPartition, UnchangedOffset]]:
    """Return the last end offsets of the ``wanted`` (cluster, topic), and since when they are unchanged, by cluster.

    The time is the first at which an exporter saw this offset, with a clock that was not set since: it starts over
    after a gap of more than two hours in the coverage. A deleted partition has none. A file that cannot be read is
    logged, and its content is unknown.
    """
    spool = history / "spool"
    trusted = _trusted_since(spool)
    found: dict[str, dict[TopicPartition, UnchangedOffset]] = {}
    files = finished_files(spool, [TABLES[Inventory]])[-_MOST_FILES:]
    rows = [row for file in files for row in _rows(file.path, wanted)]
    for row in sorted(rows, key=lambda row: int(row["observed_at"])):
        cluster, key = found.setdefault(row["cluster"], {}), TopicPartition(row["topic"], row["partition"])
        at = row["observed_at"] / 1_000_000
        began = trusted.get(file_stem(Coverage, row["exporter"], row["cluster"]), math.inf)
        if row["deleted"]:
            cluster.pop(key, None)
        elif row["latest_offset"] is not None and began <= at:
            before, now = cluster.get(key), UnchangedOffset(row["topic_id"], row["latest_offset"], at)
            if before is None or before[:2] != now[:2]:
                cluster[key] = now
    return found


def _trusted_since(spool: Location) -> Mapping[str, float]:
    """Return since when each exporter has covered each cluster without a gap, by the stem of its coverage files."""
    began, last = dict[str, float](), dict[str, float]()
    for name in sorted(file.path.stem for file in finished_files(spool, [TABLES[Coverage]])):
        stem, _, stamp = name.rpartition("-")
        try:
            at = datetime.strptime(stamp, STAMP).replace(tzinfo=UTC).timestamp()
        except ValueError:
            continue  # not a file of an exporter
        if at - last.get(stem, at - 2 * _BREAK_SECONDS) > _BREAK_SECONDS:
            began[stem] = at
        last[stem] = at
    return began


def _rows(path: Location, wanted: Callable[[str, str], bool]) -> list[dict[str, Any]]:
    import pyarrow.compute as pc  # noqa: PLC0415 - as in ``exporter.history.spool``

    try:
        table = read_columns(path, Inventory, _NAMES)
        place = table.schema.get_field_index("observed_at")
        table = table.set_column(place, "observed_at", pc.cast(table.column("observed_at"), pa.int64()))
        table = table.filter(functools.reduce(operator.and_, (pc.field(name).is_valid() for name in _NEVER_NULL)))
        rows: list[dict[str, Any]] = []
        for cluster in table.column("cluster").unique().to_pylist():
            own = table.filter(pc.field("cluster") == cluster)
            topics = [topic for topic in own.column("topic").unique().to_pylist() if wanted(cluster, topic)]
            rows += own.filter(pc.field("topic").isin(topics)).to_pylist()
    except FileNotFoundError:
        return []
    except (OSError, ForeignFileError) as error:
        log.warning("%s cannot be read (%s): its offsets are unknown", path, error)
        return []
    return rows
