"""The state file of each cluster: written with each window, read when the exporter starts.

``<history>/state/<cluster>/<exporter>.state`` is a Parquet file and, behind it, the SHA-256 of all before.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import logging
import re
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from exporter.clock import boot_id
from exporter.domain.polls.cluster_state import STATE_COLUMNS, ClusterState
from exporter.domain.polls.layout import Layout
from exporter.domain.polls.readings import State
from exporter.domain.polls.table import STATE_CODES, STATES, ClusterChange, Table
from exporter.history.tables import ForeignFileError, open_regular_file, safe
from exporter.storage import files as storage
from exporter.storage.files import Location, Stored

log = logging.getLogger(__name__)

_VERSION = 1
_NOTE = b"topic_liveness.state"
_DIGEST_BYTES = hashlib.sha256().digest_size
_MOST_BYTES = 2**30
_STATE_FILE = re.compile(r"[^.].*\.state")


@dataclass(frozen=True, slots=True)
class HistoryProgress:
    """How far the history of a cluster is written. Moments are Unix seconds."""

    latest_start: float
    """The latest begin of an interval so far. Aligned begins up to it may already be in use."""
    written: float
    """Up to when polls are in the history, if the coverage of that interval is there."""


@dataclass(frozen=True, slots=True, eq=False)
class LastState:
    """The content of a state file."""

    state: ClusterState
    progress: HistoryProgress | None
    """None where another exporter wrote it."""


def state_file(history: Location, cluster: str, exporter: str) -> Location:
    """Return the state file of a cluster."""
    return history / "state" / safe(cluster) / f"{safe(exporter)}.state"


def state_files(history: Location, before: float) -> list[Stored]:
    """Return the state files that no exporter has written since ``before`` (Unix seconds). Raises OSError."""
    return [file for file in storage.files_below(history / "state", _STATE_FILE) if file.written < before]


def write_state(path: Location, state: ClusterState, progress: HistoryProgress) -> int:
    """Write a state file, whole or not at all; return its size in bytes. Raises OSError."""
    ids = pa.array([*state.topic_ids, None], pa.string())
    columns: dict[str, Any] = {
        "topic": pa.DictionaryArray.from_arrays(state.layout.topic.astype(np.int32), list(state.layout.topics)),
        "topic_id": pa.DictionaryArray.from_arrays(
            pa.array(state.topic_id.astype(np.int32), mask=state.topic_id < 0), ids.slice(0, len(state.topic_ids))
        ),
        "partition": state.layout.partition,
    }
    columns |= {name: values for name, values in state.columns.items() if name != "state"}
    columns["state"] = pa.DictionaryArray.from_arrays(state.columns["state"], list(map(str, STATES)))
    note = {
        "version": _VERSION,
        "cluster_id": state.cluster_id,
        "cluster_change": state.cluster_change,
        "taken_at": state.taken_at,
        "read_at": state.read_at,
        "boot": boot_id(),
        "progress": asdict(progress),
    }
    table = pa.table(columns).replace_schema_metadata({_NOTE: json.dumps(note)})
    content = io.BytesIO()
    pq.write_table(table, content)
    whole = content.getvalue()
    storage.make_folder(path.parent)
    return storage.put(path, lambda file: file.write(whole + hashlib.sha256(whole).digest()))


def read_state(history: Location, cluster: str, exporter: str) -> LastState | None:
    """Return the state that an exporter left of a cluster, else the newest that another one left; None without any.

    A damaged file is logged and left out. Raises OSError where the storage cannot be read.
    """
    own = state_file(history, cluster, exporter)
    files = sorted(storage.files_in(own.parent, _STATE_FILE), key=lambda file: (file.path == own, file.written))
    for file in reversed(files):
        try:
            last = _read(file)
        except FileNotFoundError:
            continue
        except ForeignFileError as error:
            log.error(
                "the state file %s is damaged (%s) and counts as missing: silences from before this start are known as "
                "far as they are published",
                file.path,
                error,
            )
        else:
            return last if file.path == own else replace(last, progress=None)
    return None


def _read(file: Stored) -> LastState:
    if file.size > _MOST_BYTES:
        raise ForeignFileError(f"it holds at most {_MOST_BYTES} bytes, got {file.size}")
    with open_regular_file(file.path) as content:
        whole = content.read()
    body, digest = whole[:-_DIGEST_BYTES], whole[-_DIGEST_BYTES:]
    if hashlib.sha256(body).digest() != digest:
        raise ForeignFileError("its checksum is wrong")
    try:
        table = pq.read_table(io.BytesIO(body))
        note = json.loads(table.schema.metadata[_NOTE])
        if (version := note.pop("version")) != _VERSION:
            raise ForeignFileError(f"its version is {version}, and this release knows {_VERSION}")
        return _state_in(table, note)
    except MemoryError as error:
        raise OSError(errno.ENOMEM, "no memory to read it", str(file.path)) from error
    except (ValueError, KeyError, TypeError, pa.ArrowException) as error:
        if isinstance(error, ForeignFileError):
            raise
        raise ForeignFileError(f"{type(error).__name__}: {error}") from error


def _state_in(table: pa.Table, note: dict[str, Any]) -> LastState:
    topics, ids, states = (
        table.column(name).combine_chunks().cast(pa.string()).dictionary_encode()
        for name in ("topic", "topic_id", "state")
    )
    names, topic = topics.dictionary.to_pylist(), topics.indices.to_numpy()
    codes = np.array([STATE_CODES[State(text)] for text in states.dictionary.to_pylist()], dtype=np.int8)
    kinds = Table.empty(Layout.of({}))
    state = ClusterState(
        note["cluster_id"],
        None if note["cluster_change"] is None else ClusterChange(*note["cluster_change"]),
        note["taken_at"],
        note["read_at"] if note["boot"] == boot_id() else None,
        Layout(names, np.bincount(topic, minlength=len(names)).tolist(), table.column("partition").to_numpy()),
        ids.dictionary.to_pylist(),
        ids.indices.fill_null(-1).to_numpy().astype(np.intp),
        {
            name: codes[states.indices.to_numpy()]
            if name == "state"
            else table.column(name).to_numpy().astype(getattr(kinds, name).dtype)
            for name in STATE_COLUMNS
        },
    )
    return LastState(state, HistoryProgress(**note["progress"]))
