"""Spool files -> the tables ``windows``, ``coverage``, ``inventory`` and ``relations``: each row once.

Spark reads the files, leaves out rows that cannot be true, keeps one row for each key and appends. The ledger of what
was taken in, ``tables/ingested.json``, is written after the rows. After a crash between the two only rows are added
that the table does not have. A file that cannot be read now stays in place and ends the rollup: its rows may prove
that a topic lives.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation, Window
from pyspark.sql import functions as F

from exporter.domain.formatting import plural
from exporter.storage.files import Location, make_folder, spark_uri
from spark_rollups.spark.frames import spread
from spark_rollups.spool.spool_files import (
    SpoolFileError,
    SpoolTable,
    count_rows,
    find_fault,
    is_wrong,
    list_spool,
    put_aside,
)
from spark_rollups.store.durable import read_text, sync_tree, write_whole
from spark_rollups.store.tables import Tables, TablesError

_BEFORE = timedelta(minutes=10)
"""Files of tables are synced that changed from so long before the run on: another host's clock may set their times."""

_FEW_ROWS = 100_000
"""So many rows are sorted in one task."""


@dataclass(slots=True)
class IngestResult:
    """What one ingest of one table took in: file -> its rows."""

    table: str
    ingested_paths: list[Location] = field(default_factory=list)
    """The files in the spool that are in the tables, by this ingest or an earlier one."""
    files: dict[Location, int] = field(default_factory=dict)
    refusals: list[str] = field(default_factory=list)
    """Why files are in quarantine, and why rows were left out."""

    @property
    def rows(self) -> int:
        """All rows taken in; those that the table had already are among them."""
        return sum(self.files.values())


def read_ledger(tables: Tables) -> Mapping[str, frozenset[str]]:
    """Return the files that earlier runs ingested, by table; none where the note of it is lost or damaged.

    Raises TablesError where a table has fewer commits than when its files were taken in.
    """
    try:
        recorded = json.loads(read_text(tables.folder / "ingested.json"))
        known = {name: (int(one["version"]), frozenset(map(str, one["files"]))) for name, one in recorded.items()}
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return {}
    for name, (version, _) in known.items():
        if tables.version(name) < version:
            raise TablesError(
                f"{tables.folder / name} had commit {version} when spool files were taken in, and has {version - 1} or "
                f"fewer now: their rows are lost. Restore {tables.folder} from a backup; or move "
                f"{tables.folder / 'ingested.json'} away and run `topic-liveness rollup --rebuild`: it takes in again "
                "all that the spool still has"
            )
    return {name: files for name, (_, files) in known.items()}


def record(tables: Tables, taken: Sequence[IngestResult]) -> None:
    """Keep on disk which files of the spool are in the tables, so that no later run looks at them again."""
    recorded = {
        done.table: {"version": tables.version(done.table), "files": [path.name for path in done.ingested_paths]}
        for done in taken
    }
    make_folder(tables.folder)
    write_whole(tables.folder / "ingested.json", json.dumps(recorded) + "\n")


def ingest_table(
    tables: Tables, history: Location, table: SpoolTable, ledger: Mapping[str, frozenset[str]] | None = None
) -> IngestResult:
    """Ingest every finished spool file of one table that the ledger (default: the present one) does not name yet.

    The ledger itself is written by ``record``, when all tables have their rows. Raises UnreadFileError where a file
    cannot be read.
    """
    known = (read_ledger(tables) if ledger is None else ledger).get(table.name, frozenset())
    done, paths = IngestResult(table.name), list[Location]()
    for path in list_spool(history / "spool" / table.name):
        (done.ingested_paths if path.name in known else paths).append(path)
    files = _readable(paths, history, table, done)
    try:
        _append(tables, history, table, files, done)
    except (Py4JJavaError, PySparkException):
        # A page may be damaged, or the exporter deleted a file meanwhile: all that is left is read whole first.
        whole = _readable(list(files), history, table, done, pages=True)
        if len(whole) == len(files):
            raise
        files = whole
        _append(tables, history, table, files, done)
    done.ingested_paths += files
    done.files = files
    return done


def _readable(
    paths: Sequence[Location], history: Location, table: SpoolTable, done: IngestResult, *, pages: bool = False
) -> dict[Location, int]:
    """Return the files that can be taken in, with their rows, and put others into quarantine."""
    now, found = datetime.now(UTC), dict[Location, int]()
    for path in paths:
        try:
            found[path] = count_rows(path, table, now, pages=pages)
        except SpoolFileError as error:
            done.refusals.append(put_aside(path, history / "quarantine" / table.name, str(error)))
        except FileNotFoundError:
            continue  # the exporter deleted it since it was listed
    return found


def _append(
    tables: Tables, history: Location, table: SpoolTable, files: Mapping[Location, int], done: IngestResult
) -> None:
    """Append rows whose key the table lacks. It may have them of a copied file, or of a run that was killed."""
    if not any(files.values()):
        return
    spread(tables.spark, rows=sum(files.values()))
    reader = tables.spark.read.schema(table.schema).option("recursiveFileLookup", "true")
    # A name is taken for a pattern, also that of the history folder.
    read = reader.parquet(*(re.sub(r"([\\\[\]{}*?])", r"\\\1", spark_uri(path)) for path in files))
    now = datetime.now(UTC)
    wrong = is_wrong(table.schema, now)
    there = tables.read(table.name) if tables.exists(table.name) else None
    first: date | None = date(1970, 1, 1)
    if tables.exists("daily"):
        day = F.when(~wrong, F.to_date(table.dated_by))
        first, last = read.agg(F.min(day), F.max(day)).collect()[0]
        # Delta reads the days that these files touch, and no others.
        there = None if there is None else there.where(F.col("date").between(F.lit(first), F.lit(last)))
    if first is not None:
        note_pending(tables, first)
    seen = Observation()
    # Observed, no condition reaches the reader, which would believe a damaged footer.
    observed = read.withColumn("wrong", wrong).observe(seen, F.count_if("wrong").alias("wrong"))
    rows = observed.where("not wrong").drop("wrong").withColumn("date", F.to_date(table.dated_by))
    tables.append(table.name, keep_one_of_each(rows, there, table, few=sum(files.values()) < _FEW_ROWS))
    if seen.get["wrong"]:
        checked = read.where(wrong).withColumn("fault", find_fault(table.schema, now))
        done.refusals += _faults(checked, table, history)


def _faults(checked: DataFrame, table: SpoolTable, history: Location) -> list[str]:
    """Keep a copy of the rows that were left out; return for each rule how many broke it."""
    wrong = checked.withColumn("file", F.input_file_name())
    aside = history / "quarantine" / table.name / f"rows-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    wrong.coalesce(1).write.mode("append").parquet(spark_uri(aside))
    by_rule = wrong.groupBy("fault.rule").agg(
        F.count("*").alias("rows"), F.min("fault.got").alias("got"), F.min("file").alias("file")
    )
    return [
        f"{plural(row.rows, 'row')} of {table.name} left out that cannot be true: {row.rule}, got {row.got} in "
        f"{row.file.rpartition('/')[2]}. A copy is in {aside}: find out who wrote it"
        for row in by_rule.orderBy("rule").collect()
    ]


def keep_one_of_each(rows: DataFrame, there: DataFrame | None, table: SpoolTable, *, few: bool) -> DataFrame:
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


def note_pending(tables: Tables, first: date) -> None:
    """Keep on disk that days must be made again from the UTC day ``first`` on.

    Written before the rows are, so that no crash can forget it.
    """
    before = find_pending_day(tables)
    if before is None or first < before:
        tables.note(pending=first.isoformat())


def find_pending_day(tables: Tables) -> date | None:
    """Return the UTC day from which days are not up to date, None where all are."""
    pending = tables.notes().get("pending")
    return None if pending is None else date.fromisoformat(pending)


def publish_ingested(history: Location, taken: Sequence[IngestResult], began: datetime) -> None:
    """Tell the exporter which spool files it may delete, after a run that ``began`` then.

    The tables are synced first: once the files are gone, a power failure must not lose their rows.
    """
    sync_tree(history / "tables", changed_since=(began - _BEFORE).timestamp())
    published = history / "published"
    make_folder(published)
    names = [f"{done.table}/{path.name}\n" for done in taken for path in done.ingested_paths]
    write_whole(published / "ingested.txt", "".join(names))
