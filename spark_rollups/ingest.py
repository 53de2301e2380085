"""Spool files -> the tables ``windows``, ``coverage`` and ``inventory``: each row once, however often it runs.

A file that cannot be read stays in place and ends the rollup: its rows may prove that a topic lives. The ledger
``ingested_files`` is written after the rows. After a crash between the two only rows are added that the table does not
have. ``windows``, ``inventory`` and ``relations`` have the rows of all files, and a row twice if two files have it; all
later tables count it once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from exporter.domain import SCHEMA_VERSION
from exporter.storage import Location, delete, for_pyarrow, make_folder, spark_uri
from spark_rollups import spool_schemas
from spark_rollups.durable import read_text, sync_tree, write_whole
from spark_rollups.frames import arrow_schema, as_arrow, from_rows, held_here, in_own_process, spread
from spark_rollups.spool_files import Refusal, RefusedFileError, SpoolTable, put_aside, sound_rows, spooled
from spark_rollups.tables import SCHEMAS, Tables, TablesError

RENAME_MARGIN = timedelta(minutes=10)
"""A file may get its final name this long after its last write; the watermark stays behind by as much."""

_BATCH_ROWS = 100_000


@dataclass(slots=True)
class Ingested:
    """What one ingest of one table took in: file -> its rows, between the UTC days ``first`` and ``last``."""

    table: str
    ingested_paths: list[Location] = field(default_factory=list)
    """The files in the spool that are in the tables, by this ingest or an earlier one."""
    files: dict[Location, int] = field(default_factory=dict)
    refusals: list[Refusal] = field(default_factory=list)
    first: date | None = None
    last: date | None = None
    table_rows: int | None = None
    """Rows that the table holds afterwards; None where nothing was taken in."""
    again: bool = False
    """The table had lost rows, and the whole spool was taken in again."""

    @property
    def rows(self) -> int:
        """All rows taken in; those that the table had already are among them."""
        return sum(self.files.values())


@dataclass(frozen=True, slots=True)
class Ledger:
    """The ledger of one table: the ingested files, and how many rows the table held with them."""

    files: frozenset[str] = frozenset()
    table_rows: int = 0


def read_ledger(tables: Tables) -> Mapping[str, Ledger]:
    """Return the files that earlier runs ingested, by table."""
    files, rows = dict[str, list[str]](), dict[str, int]()
    for row in tables.read("ingested_files").collect():
        files.setdefault(row.table, []).append(row.file)
        rows[row.table] = max(rows.get(row.table, 0), row.table_rows or 0)
    return {name: Ledger(frozenset(files[name]), rows[name]) for name in files}


def ingest_table(
    tables: Tables, history: Location, table: SpoolTable, ledger: Mapping[str, Ledger] | None = None
) -> Ingested:
    """Ingest every finished spool file of one table that the ledger (default: the present one) does not name yet.

    The ledger itself is written by ``record``, when all tables have their rows. If the table has fewer rows than the
    ledger says, all files are ingested again. Raises TablesError if that does not bring all rows back.
    Raises UnreadFileError where a file cannot be read.
    """
    before = (read_ledger(tables) if ledger is None else ledger).get(table.name, Ledger())
    known = before.files
    done, now = Ingested(table.name), datetime.now(UTC)
    done.again = bool(before.table_rows) and tables.count(table.name) < before.table_rows
    if done.again:
        known = frozenset()
    quarantine = history / "quarantine" / table.name
    with _Batch(tables.folder / f"new-{table.name}.parquet") as batch:
        for path in spooled(history / "spool" / table.name):
            if path.name in known:
                done.ingested_paths.append(path)
                continue
            try:
                rows, refusal = sound_rows(path, table, quarantine, now)
            except RefusedFileError as error:
                done.refusals.append(put_aside(path, quarantine, str(error)))
                continue
            except FileNotFoundError:
                continue  # the exporter deleted it since it was listed
            if refusal is not None:
                done.refusals.append(refusal)
            done.ingested_paths.append(path)
            done.files[path] = rows.num_rows
            if rows.num_rows:
                batch.add(rows)
                span = pc.min_max(rows.column(table.dated_by)).as_py()
                first, last = (span[side].astimezone(UTC).date() for side in ("min", "max"))
                done.first = min(first, done.first or first)
                done.last = max(last, done.last or last)
        if done.rows:
            note_pending(tables, done.first)
            _append(tables, table, done, batch.written())
    if done.rows or done.again:
        done.table_rows = held = tables.count(table.name)
        if held < before.table_rows:
            raise TablesError(
                f"{tables.folder / table.name} holds {held:,} rows, and {before.table_rows:,} had been taken in: the "
                f"others are lost, and not in the spool any more. Restore {tables.folder} from a backup; or, to go on "
                f"without them, move {tables.folder / 'ingested_files'} away"
            )
    return done


def record(tables: Tables, taken: Sequence[Ingested]) -> None:
    """Write to the ledger which files have been taken in, so that no later run looks at them again."""
    rows = [
        (done.table, path.name, count, done.table_rows) for done in taken for path, count in sorted(done.files.items())
    ]
    if rows:
        ledger_rows = from_rows(tables.spark, rows, spool_schemas.INGESTED_FILES)
        tables.append("ingested_files", ledger_rows)


def note_pending(tables: Tables, first: date | None) -> None:
    """Keep on disk that days must be made again from the UTC day ``first`` on.

    Written before the rows are, so that no crash can forget it.
    """
    before = pending_since(tables)
    if first is None or (before is not None and before <= first):
        return
    make_folder(tables.folder)
    write_whole(tables.folder / "pending.json", json.dumps({"from": first.isoformat()}) + "\n")


def pending_since(tables: Tables) -> date | None:
    """Return the UTC day from which days are not up to date, None where all are.

    A note that cannot be read stands for all days.
    """
    try:
        pending = json.loads(read_text(tables.folder / "pending.json"))
        return date.fromisoformat(pending["from"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        return date(1970, 1, 1)


def clear_pending(tables: Tables) -> None:
    """Forget what ``note_pending`` kept: all that is made of windows is up to date."""
    delete(tables.folder / "pending.json")


def publish_ingested(history: Location, taken: Sequence[Ingested], listed_at: datetime) -> datetime:
    """Tell the exporter which spool files it may delete; ``listed_at`` is from before the spool was read.

    Every file last written at or before the returned moment has been ingested or put into quarantine. The tables are
    synced first: once the files are gone, a power failure must not lose their rows.
    """
    watermark = listed_at.astimezone(UTC) - RENAME_MARGIN
    sync_tree(history / "tables", changed_since=watermark.timestamp())
    published = history / "published"
    make_folder(published)
    names = [f"{done.table}/{path.name}\n" for done in taken for path in done.ingested_paths]
    write_whole(published / "ingested.txt", "".join(names))
    content = {"schema_version": SCHEMA_VERSION, "watermark": watermark.isoformat().replace("+00:00", "Z")}
    write_whole(published / "ingest.json", json.dumps(content) + "\n")
    return watermark


class _Batch:
    """New rows in one file for Spark, which would end at files that can be read here; a context manager."""

    def __init__(self, path: Location) -> None:
        self._path = path
        self._waiting: list[pa.Table] = []
        self._rows = 0
        self._writer: pq.ParquetWriter | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._writer is None:
            return
        # The storage may have failed: a second error here would hide the first.
        with nullcontext() if kind is None else suppress(OSError):
            self._writer.close()
            delete(self._path)

    def add(self, rows: pa.Table) -> None:
        """Add the rows of one spool file."""
        self._waiting.append(rows)
        self._rows += rows.num_rows
        if self._rows >= _BATCH_ROWS:
            self._write()

    def written(self) -> Location:
        """Write what is left and return the finished file. Call it only after rows were added."""
        self._write().close()
        return self._path

    def _write(self) -> pq.ParquetWriter:
        if self._writer is None:
            make_folder(self._path.parent)
            name, storage = for_pyarrow(self._path)
            self._writer = pq.ParquetWriter(name, self._waiting[0].schema, filesystem=storage)
        if self._waiting:
            self._writer.write_table(pa.concat_tables(self._waiting))
            self._waiting.clear()
            self._rows = 0
        return self._writer


def _append(tables: Tables, table: SpoolTable, done: Ingested, batch: Location) -> None:
    """Add the rows of a batch, each once, but for those that the table has: by copies, or by a run that was killed."""
    spread(tables.spark, rows=done.rows)
    if in_own_process(tables.spark):
        name, storage = for_pyarrow(batch)
        new = once_each_here(pq.read_table(name, filesystem=storage), as_arrow(tables.read(table.name)), table)
        tables.append(table.name, held_here(tables.spark, new, SCHEMAS[table.name]))
        return
    reader = tables.spark.read.schema(table.schema).option("recursiveFileLookup", "true")
    # It takes the name for a pattern, also that of the history folder.
    read = reader.parquet(re.sub(r"([\\\[\]{}*?])", r"\\\1", spark_uri(batch)))
    rows = read.withColumn("date", F.to_date(table.dated_by))
    there = None
    if tables.exists(table.name):
        # Delta reads the days that this batch touches, and no others.
        there = tables.read(table.name).where(F.col("date").between(F.lit(done.first), F.lit(done.last)))
    tables.append(table.name, once_each(rows, there, table, few=done.rows < _BATCH_ROWS))


def once_each(rows: DataFrame, there: DataFrame | None, table: SpoolTable, *, few: bool) -> DataFrame:
    """Keep of ``rows`` one of each key, whatever the order of the files, and none whose key is ``there``.

    Of rows with one key the latest by its other columns is kept. Rows are shuffled and sorted once, by their day:
    so they are written too.
    """
    key = (*table.key, "date")
    candidates = rows.withColumn("old", F.lit(False))
    if there is not None:
        candidates = candidates.unionByName(there.select(*key, F.lit(True).alias("old")), allowMissingColumns=True)
    candidates = candidates.coalesce(1) if few else candidates.repartition("date")
    others: list[Column] = [F.col(name).desc_nulls_last() for name in rows.columns if name not in key]
    order = Window.partitionBy("date", *table.key).orderBy(F.col("old").desc(), *others)
    return (
        candidates.withColumn("place", F.row_number().over(order)).where("place = 1 and not old").drop("place", "old")
    )


def once_each_here(rows: pa.Table, there: pa.Table, table: SpoolTable) -> pa.Table:
    """Do the same in this process: with few rows a query of Spark takes longer than the work itself."""
    kinds, key = arrow_schema(SCHEMAS[table.name]), table.key
    rows = rows.append_column("date", rows.column(table.dated_by).cast(pa.date32())).select(kinds.names).cast(kinds)
    others = [(name, "descending") for name in rows.column_names if name not in key]
    rows = rows.take(pc.sort_indices(rows, [*((name, "ascending") for name in key), *others]))
    numbered = _keys(rows, table).append_column("row", pa.array(range(len(rows)), pa.int64()))
    first = numbered.group_by(key).aggregate([("row", "min")])
    return rows.take(first.join(_keys(there, table), key, join_type="left anti").column("row_min").sort())


def _keys(rows: pa.Table, table: SpoolTable) -> pa.Table:
    """Return what identifies rows, with a text in place of a missing id: to Arrow no null equals another."""
    kinds = arrow_schema(SCHEMAS[table.name])
    columns = {name: rows.column(name).cast(kinds.field(name).type) for name in table.key}
    texts = {name: pc.fill_null(column, "\0") for name, column in columns.items() if pa.types.is_string(column.type)}
    return pa.table(columns | texts)
