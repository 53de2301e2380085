"""What no exporter writes into a spool: entries that are no files, and files that are small on the disk only."""

import itertools
import os
import random
import socket
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from exporter.domain.history.rows import FILE_BYTES, FILE_ROWS

STRAYS = tuple(f"stray-{kind}.parquet" for kind in ("pipe", "socket", "device", "folder", "loop", "nowhere"))


def strays(folder: Path) -> None:
    """Put one of each of ``STRAYS`` into a folder of spool files."""
    pipe, bound, device, inner, loop, nowhere = (folder / name for name in STRAYS)
    os.mkfifo(pipe)
    descriptor = os.open(folder, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(f"/proc/self/fd/{descriptor}/{bound.name}")  # a socket's path has 108 bytes at most
    os.close(descriptor)
    device.symlink_to("/dev/zero")
    inner.mkdir()
    loop.symlink_to(loop)
    nowhere.symlink_to(folder / "nothing")


def with_huge_texts(path: Path, row: pa.Table) -> None:
    """Write a row again and again, each time with a topic of 64 MiB: more than ``FILE_BYTES`` in some megabytes."""
    table = row.set_column(row.schema.get_field_index("topic"), "topic", pa.array(["x" * 2**26]))
    with pq.ParquetWriter(path, table.schema, use_dictionary=False, write_statistics=False) as writer:
        for _ in range(FILE_BYTES // 2**26 + 1):
            writer.write_table(table)


def with_many_rows(path: Path, row: pa.Table) -> None:
    """Write a row as often as no file may hold it: ``FILE_ROWS`` times and once more, in some kilobytes."""
    some = pa.Table.from_arrays([pa.repeat(column[0], FILE_ROWS // 20) for column in row.columns], schema=row.schema)
    with pq.ParquetWriter(path, row.schema, write_statistics=False) as writer:
        for table in (*[some] * 20, row):
            writer.write_table(table)


def flips(path: Path, count: int) -> Iterator[int]:
    """Flip one bit of a file after the other, evenly spread over its bytes; each is put back."""
    content, drawn = path.read_bytes(), random.Random(17)
    edges = [len(content) * number // count for number in range(count + 1)]
    with path.open("r+b", buffering=0) as file:
        for place in itertools.starmap(drawn.randrange, itertools.pairwise(edges)):
            os.pwrite(file.fileno(), bytes([content[place] ^ 1 << drawn.randrange(8)]), place)
            yield place
            os.pwrite(file.fileno(), content[place : place + 1], place)
