"""The files of a report in one folder: all of them are made before any takes the place of an earlier one."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path

from exporter.storage import Location, ObjectPath, delete, files_in, put, sync
from spark_rollups.report.build import part_of
from spark_rollups.report.forms import to_json
from spark_rollups.report.model import Report
from spark_rollups.report.render import to_html, to_markdown

HTML, MARKDOWN, JSON = "liveness.html", "liveness.md", "liveness.json"
OWNERS = "owners"
"""The folder of the pages of owners."""

_PAGE = re.compile(r".*\.(html|md)")


def write_files(report: Report, folder: Location) -> None:
    """Write all files of a report, and take away pages of owners that it does not have.

    What fails on this host, a full disk too, leaves the files of an earlier report as they were; in object storage
    each file is replaced whole, the page that the exporter looks for as the last. Raises OSError.
    """
    if isinstance(folder, ObjectPath):
        _put_files(report, folder)
        return
    folder.mkdir(parents=True, exist_ok=True)
    # Not by the number of the process: in a container a killed one had the same.
    draft = Path(tempfile.mkdtemp(prefix=".liveness.", dir=folder))
    try:
        (draft / OWNERS).mkdir()
        names = []
        for name, text in _files(report):
            names.append(name)
            _write(draft / name, text)
        (folder / OWNERS).mkdir(exist_ok=True)
        for name in names:
            (draft / name).replace(folder / name)
        for page in (folder / OWNERS).iterdir():
            if page.suffix in (".html", ".md") and f"{OWNERS}/{page.name}" not in names:
                page.unlink()
        sync(folder / OWNERS)
        sync(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        with suppress(OSError):
            folder.rmdir()  # where it is empty still


def _put_files(report: Report, folder: ObjectPath) -> None:
    written = set()
    for name, text in _files(report):
        path = folder / name
        put(path, lambda file, text=text: file.write("".join(text).encode(errors="backslashreplace")))  # type: ignore[misc]
        written.add(path)
    for page in files_in(folder / OWNERS, _PAGE):
        if page.path not in written:
            delete(page.path)


def _files(report: Report) -> Iterator[tuple[str, Iterable[str]]]:
    """Return names and texts; the page that the exporter looks for is the last."""
    yield JSON, chain.from_iterable((line, "\n") for line in to_json(report))
    for part in report.owners:
        if part.html is not None and part.markdown is not None:
            mine = part_of(report, part)
            yield part.html, [to_html(mine)]
            yield part.markdown, [to_markdown(mine)]
    yield MARKDOWN, [to_markdown(report)]
    yield HTML, [to_html(report)]


def _write(path: Path, text: Iterable[str]) -> None:
    with path.open("w", encoding="utf-8", newline="\n", errors="backslashreplace") as file:
        file.writelines(text)
        file.flush()
        os.fsync(file.fileno())
