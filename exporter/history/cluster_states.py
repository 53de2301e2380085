"""The state file of each cluster: written with each window, read when the exporter starts.

``<history>/state/<cluster>/<exporter>.state`` is an archive of numpy (npz): the columns, and a note as JSON.
"""

import errno
import io
import json
import logging
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from exporter.clock import boot_id
from exporter.domain.polls.layout import Layout
from exporter.domain.polls.metadata import number_ids
from exporter.domain.polls.table import STATES, ClusterChange, Snapshot, Table
from exporter.history.tables import ForeignFileError, escape_name, read_whole
from exporter.storage import files as storage
from exporter.storage.files import FileInfo, Location

log = logging.getLogger(__name__)

_VERSION = 2
_MOST_BYTES = 2**30
_STATE_FILE = re.compile(r"[^.].*\.state")


STATE_COLUMNS = (
    *("earliest", "latest", "newest", "state", "last_good_poll", "previous_poll", "last_advance", "silent_since"),
    *("advanced_after", "polls_good", "polls_missed"),
)
"""The columns of a table that are kept. The others follow from the first poll of a start."""


@dataclass(frozen=True, slots=True, eq=False)
class ClusterState:
    """What polls know of one cluster as of a poll, in n partitions that a poll has read: a start goes on from it.

    How far its history is written is known to the exporter that wrote it alone. Moments are Unix seconds.
    """

    cluster_id: str | None
    cluster_change: ClusterChange | None
    taken_at: float
    """The wall clock at the poll."""
    read_at: float | None
    """The monotonic clock at the poll; None where the machine was started again since."""
    layout: Layout
    topic_ids: Sequence[str | None]
    """By topic of the layout; None where unknown."""
    columns: Mapping[str, NDArray[Any]]
    """The columns of STATE_COLUMNS, each [n]."""
    latest_start: float = -math.inf
    """The latest begin of a history interval so far. Aligned begins up to it may already be in use."""
    written: float = -math.inf
    """Up to when polls are in the history, if the coverage of that interval is there."""

    @classmethod
    def build(cls, snapshot: Snapshot) -> Self:
        """Return the state as of a poll. A partition whose values are of an earlier topic of its name is left out."""
        table, topics = snapshot.table, snapshot.metadata.topics
        rows = np.flatnonzero(~np.isnan(table.last_good_poll) & ~table.other_topic)
        layout = table.layout.part(rows)
        return cls(
            snapshot.metadata.cluster_id,
            snapshot.cluster_change,
            snapshot.taken_at,
            snapshot.read_at,
            layout,
            [topics[name].topic_id for name in layout.topics],
            {name: getattr(table, name)[rows] for name in STATE_COLUMNS},
        )

    def table(self) -> Table:
        """Return the table of a poller that goes on from here."""
        return Table.empty(self.layout).replace(topic_id=number_ids(self.topic_ids)[self.layout.topic], **self.columns)


def state_file(history: Location, cluster: str, exporter: str) -> Location:
    """Return the state file of a cluster."""
    return history / "state" / escape_name(cluster) / f"{escape_name(exporter)}.state"


def state_files(history: Location, before: float) -> list[FileInfo]:
    """Return the state files that no exporter has written since ``before`` (Unix seconds). Raises OSError."""
    return [file for file in storage.files_below(history / "state", _STATE_FILE) if file.written < before]


def write_state(path: Location, state: ClusterState) -> None:
    """Write a state file, whole or not at all. Raises OSError."""
    note = {
        "version": _VERSION,
        "states": STATES,
        "cluster_id": state.cluster_id,
        "cluster_change": state.cluster_change,
        "taken_at": state.taken_at,
        "read_at": state.read_at,
        "boot": boot_id(),
        "topics": state.layout.topics,
        "counts": np.diff(state.layout.first).tolist(),
        "topic_ids": state.topic_ids,
        "progress": {"latest_start": state.latest_start, "written": state.written},
    }
    arrays = {**state.columns, "partition": state.layout.partition, "note": np.array(json.dumps(note))}
    storage.make_folder(path.parent)
    storage.put(path, lambda file: np.savez_compressed(file, allow_pickle=False, **arrays))


def read_state(history: Location, cluster: str, exporter: str) -> ClusterState | None:
    """Return the state that an exporter left of a cluster, else the newest that another one left; None without any.

    A damaged file is logged and left out. Raises OSError where the storage cannot be read.
    """
    own = state_file(history, cluster, exporter)
    files = sorted(storage.files_in(own.parent, _STATE_FILE), key=lambda file: (file.path == own, file.written))
    for file in reversed(files):
        try:
            state = _read(file)
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
            return state if file.path == own else replace(state, latest_start=-math.inf, written=-math.inf)
    return None


def _read(file: FileInfo) -> ClusterState:
    whole = read_whole(file.path, _MOST_BYTES)
    try:
        # It compares the checksum of each column that is read.
        with np.load(io.BytesIO(whole), allow_pickle=False) as arrays:
            return _state_in(arrays)
    except MemoryError as error:
        raise OSError(errno.ENOMEM, "no memory to read it", str(file.path)) from error
    except Exception as error:
        # zipfile and numpy document no list of errors for damaged files.
        raise ForeignFileError(f"{type(error).__name__}: {error}") from error


def _state_in(arrays: Mapping[str, NDArray[Any]]) -> ClusterState:
    note = json.loads(str(arrays["note"]))
    if note["version"] != _VERSION:
        raise ValueError(f"its version is {note['version']}, and this release writes {_VERSION}")
    if tuple(note["states"]) != STATES:
        raise ValueError(f"its states are {', '.join(note['states'])}, and this release knows {', '.join(STATES)}")
    change = note["cluster_change"]
    return ClusterState(
        note["cluster_id"],
        None if change is None else ClusterChange(*change),
        note["taken_at"],
        note["read_at"] if note["boot"] == boot_id() else None,
        Layout(note["topics"], note["counts"], arrays["partition"]),
        note["topic_ids"],
        {name: arrays[name] for name in STATE_COLUMNS},
        **note["progress"],
    )
