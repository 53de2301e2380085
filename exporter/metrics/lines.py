"""Series as text, kept from poll to poll: labels as long as rows stay, values that did not change, and whole metrics.

The client library's renderer is an order of magnitude slower at 100,000 series.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Flags, Floats, Rows

_LEVEL = 1
"""Label sets repeat so much that a higher level costs more time than it saves bytes."""

_GZIP_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff"
"""RFC 1952: deflate, no name, no time, the fastest level, any system."""

_END_OF_STREAM = b"\x03\x00"
"""RFC 1951: a last block with nothing in it."""


class Block:
    """Some lines of an exposition, in any form. Safe for any thread."""

    __slots__ = ("_deflated", "text")

    def __init__(self, text: bytes) -> None:
        self.text = text
        self._deflated: bytes | None = None

    @property
    def is_deflated(self) -> bool:
        """Whether the compressed form exists."""
        return self._deflated is not None

    def render(self, now: float) -> Block:  # noqa: ARG002 - of the same form as Ages
        """Return the text as of ``now``, which is always the same."""
        return self

    def deflate(self) -> bytes:
        """Return the text as deflate data that ends with a byte and refers to nothing before it."""
        if self._deflated is None:
            packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
            self._deflated = packer.compress(self.text) + packer.flush(zlib.Z_SYNC_FLUSH)
        return self._deflated


def compress_blocks(blocks: Iterable[Block]) -> list[bytes]:
    """Return the blocks as one gzip stream, in pieces.

    A single member: many clients, httpx among them, stop reading after the first member.
    """
    pieces, crc, size = [_GZIP_HEADER], 0, 0
    for block in blocks:
        pieces.append(block.deflate())
        crc = zlib.crc32(block.text, crc)
        size += len(block.text)
    pieces.append(_END_OF_STREAM + struct.pack("<II", crc, size & 0xFFFF_FFFF))
    return pieces


Column = tuple[NDArray[Any], Flags]
"""The values of one metric by row, and where they are known."""

Labels = NDArray[np.object_]
"""The labels of rows: ``{a="1",b="2"`` without the closing brace, so that more can follow. Never written to."""

R = TypeVar("R")
"""What rows are about; equal where all labels are equal."""


class AgeColumn(NamedTuple):
    """Ages of rows in seconds that grow when served, from the moment ``since``; NaN where unknown."""

    since: Floats
    at_least: Floats = np.zeros(())
    """None falls below that of its row, or of all."""


_NOTHING_GROWS: Mapping[str, AgeColumn] = MappingProxyType({})


def escape(value: str) -> str:
    """Return a label value in the text format."""
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def number(value: float) -> str:
    """Return a sample value in the text format."""
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)


def mask_nan(values: Floats) -> Column:
    """Return a column of numbers, known where they are not NaN."""
    return values, ~np.isnan(values)


class Lines:
    """The samples of one metric: one for each row and each of ``variants``, absent where unknown."""

    def __init__(self, name: str, tail: Callable[[Any], str] | None = None, variants: Sequence[str] = ("",)) -> None:
        """``tail`` returns what follows the labels of a row, from its value; by default that is the value.

        ``variants`` are further labels: each row has one value for each of them, in this order.
        """
        self._name, self._tail, self._variants = name, tail, variants
        self._labels: Labels = np.empty(0, dtype=object)
        self._tails: Labels = np.empty(0, dtype=object)
        """What follows the labels in each line; meaningless where there is none."""
        self._values: NDArray[Any] = np.empty(0)
        self._known: Flags = np.empty(0, dtype=np.bool_)
        self._block = Block(b"")

    def show(self, labels: Labels, values: NDArray[Any], known: Flags) -> Block:
        """Take the values of a poll, by row and variant, and return the lines."""
        if labels is self._labels:
            changed = (known != self._known) | (known & (values != self._values))
        else:
            changed = known
            self._tails = np.empty(len(known), dtype=object)
        if labels is not self._labels or changed.any():
            self._labels, self._values, self._known = labels, values, known
            rows = np.flatnonzero(changed & known)
            self._tails[rows] = self._tails_of(rows)
            compressed = self._block.is_deflated
            self._block = Block(self._text())
            if compressed:  # a client that asked for it asks again, and no scrape waits
                self._block.deflate()
        return self._block

    def _text(self) -> bytes:
        pieces = np.empty((len(self._known), 3), dtype=object)
        pieces[:, 0] = self._name
        pieces[:, 1] = np.repeat(self._labels, len(self._variants))
        pieces[:, 2] = self._tails
        if not self._known.all():
            pieces = pieces[self._known]
        return "".join(pieces.ravel().tolist()).encode()

    def _tails_of(self, rows: Rows) -> Labels:
        # Many rows have the same value, and share its text: the last advance of all that moved in a poll, a leader.
        values, which = np.unique(self._values[rows], return_inverse=True)
        if self._tail is not None:
            tails = column_of([self._tail(value) for value in values.tolist()])[which]
        else:
            texts = map(number if np.isinf(values).any() else repr, values.tolist())
            tails = column_of([f"}} {text}\n" for text in texts])[which]
        return tails if len(self._variants) == 1 else column_of(self._variants)[rows % len(self._variants)] + tails


class Ages:
    """The samples of one metric that grow with time, in seconds; rendered when served."""

    def __init__(self, name: str, labels: Labels, growing: AgeColumn, before: Ages | None = None) -> None:
        """``before`` are the ages of the last poll."""
        self.labels, self._growing, self.known = labels, growing, ~np.isnan(growing.since)
        if before is not None and before.labels is labels and np.array_equal(before.known, self.known):
            self.template: bytes = before.template
        else:
            rows = labels[self.known].tolist()
            self.template = "".join([f"{name}{label.replace('%', '%%')}}} %.3f\n" for label in rows]).encode()

    def render(self, now: float) -> Block:
        """Return the ages as of ``now``; the age of a time in the future is 0."""
        ages = np.maximum(self._growing.at_least, now - self._growing.since)
        return Block(self.template % tuple(ages[self.known].tolist()))


Samples = Mapping[str, Sequence[Block | Ages]]
"""Samples by the name of their metric: those that stay until the next poll or sweep, and those that grow with time."""


class RowSeries(Generic[R]):
    """The series of some rows with the same labels. One thread updates."""

    def __init__(
        self,
        labels_of: Callable[[R], Sequence[str]],
        tails: Mapping[str, Callable[[Any], str]] = MappingProxyType({}),
        variants: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> None:
        """``labels_of`` returns the labels of each row; ``tails`` and ``variants`` are by metric, as in ``Lines``."""
        self._labels_of, self._tails, self._variants = labels_of, tails, variants
        self._rows: R | None = None
        self._labels: Labels = np.empty(0, dtype=object)
        self._lines: dict[str, Lines] = {}
        self._ages: Mapping[str, Ages] = {}

    def update(
        self, rows: R, columns: Mapping[str, Column], growing: Mapping[str, AgeColumn] = _NOTHING_GROWS
    ) -> Samples:
        """Take the values of a poll and return the samples; a metric may have rows that grow and rows that stay."""
        if self._rows is None or rows != self._rows:
            self._rows, self._labels = rows, column_of(self._labels_of(rows))
        samples: dict[str, list[Block | Ages]] = {}
        for name, column in columns.items():
            if name not in self._lines:
                self._lines[name] = Lines(name, self._tails.get(name), self._variants.get(name, ("",)))
            samples[name] = [self._lines[name].show(self._labels, *column)]
        self._ages = {name: Ages(name, self._labels, each, self._ages.get(name)) for name, each in growing.items()}
        for name, ages in self._ages.items():
            samples.setdefault(name, []).append(ages)
        return samples


def column_of(texts: Sequence[str]) -> Labels:
    """Return strings as a column."""
    column: Labels = np.empty(len(texts), dtype=object)
    column[:] = texts
    return column
