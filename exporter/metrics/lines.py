"""Lines of the text format, cached from poll to poll: only changes are formatted again."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Flags, Floats, Rows
from exporter.domain.polls.layout import Layout
from exporter.domain.polls.readings import TopicPartition
from exporter.metrics.blocks import Block

CHUNK_ROWS = 4096
"""Rows that are put together at a time: a millisecond of work, and a block that compresses well."""

Texts = NDArray[np.object_]
"""A column of strings."""

_NONE: Rows = np.zeros(0, dtype=np.intp)


def escape(value: str) -> str:
    """Return a label value in the text format."""
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def number(value: float) -> str:
    """Return a sample value in the text format."""
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)


class LabelledRows:
    """The labels of rows, formatted once for each row.

    They are ``{a="1",b="2"`` without the closing brace, so that more labels can follow.
    """

    def __init__(self, labels_of: Callable[[TopicPartition], str]) -> None:
        self._labels_of = labels_of
        self._layout = Layout((), (), np.zeros(0, dtype=np.int32))
        self.labels: Texts = np.empty(0, dtype=object)
        """By row; never written to."""

    def follow(self, layout: Layout) -> tuple[Rows, Rows] | None:
        """Take the rows of a poll; return kept rows and their old places, None where no row changes."""
        if layout == self._layout:
            return None
        here, there = layout.moves_from(self._layout)
        labels = np.empty(len(layout), dtype=object)
        labels[here] = self.labels[there]
        for row in np.setdiff1d(np.arange(len(layout)), here, assume_unique=True).tolist():
            labels[row] = self._labels_of(layout.key(row))
        self._layout, self.labels = layout, labels
        return here, there


class Chunks:
    """Where rows are cut into chunks of about ``step``. Rows that come and go change only the chunks around them."""

    def __init__(self, step: int, bounds: Sequence[int] = (0,)) -> None:
        """``bounds`` are the first row of each chunk, and the number of rows."""
        self._step = step
        self._bounds = np.asarray(bounds, dtype=np.intp)

    def __iter__(self) -> Iterator[slice]:
        return map(slice, self._bounds[:-1].tolist(), self._bounds[1:].tolist())

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def of(self, rows: Rows) -> list[int]:
        """Return the chunks that these rows are in."""
        found: list[int] = np.unique(np.searchsorted(self._bounds, rows, side="right") - 1).tolist()
        return found

    def moved(self, count: int, here: Rows, there: Rows) -> tuple[Chunks, list[int | None]]:
        """Return chunks of ``count`` rows after a move (see ``LabelledRows.follow``), and which of these each was.

        One that was another, or more than one, is None.
        """
        bounds, was = [0], list[int | None]()
        for chunk, start, end in [*self._whole(here, there), (None, count, count)]:
            if start > bounds[-1]:
                self._cut(bounds, was, start)
            if chunk is not None:
                bounds.append(end)
                was.append(chunk)
        return Chunks(self._step, bounds), was

    def _whole(self, here: Rows, there: Rows) -> list[tuple[int | None, int, int]]:
        """Return the chunks whose rows all still follow each other, with the first row and the end of each."""
        if not len(self) or not len(there) or (np.diff(there) <= 0).any():
            return []
        first, after = np.searchsorted(there, self._bounds[:-1]), np.searchsorted(there, self._bounds[1:])
        size = np.diff(self._bounds)
        full = np.flatnonzero(after - first == size)
        start, end = here[first[full]], here[after[full] - 1] + 1
        together = end - start == size[full]
        return list(zip(full[together].tolist(), start[together].tolist(), end[together].tolist(), strict=True))

    def _cut(self, bounds: list[int], was: list[int | None], end: int) -> None:
        """Add the rows up to ``end``, to the chunk before them where they are few."""
        if was and end - bounds[-1] < self._step // 2:
            bounds.pop()
            was.pop()
        pieces = max(1, round((end - bounds[-1]) / self._step))
        cuts = np.linspace(bounds[-1], end, pieces + 1).astype(np.intp).tolist()
        bounds += cuts[1:]
        was += [None] * (len(cuts) - 1)


class Lines:
    """The samples of one metric: one for each row and each of ``variants``, absent where unknown."""

    def __init__(self, name: str, tail: Callable[[Any], str] | None = None, *, variants: Sequence[str] = ("",)) -> None:
        """``tail`` returns what follows the labels of a row, from its value; by default that is the value.

        ``variants`` are further labels: each row has one value for each of them, in this order.
        """
        self._name = name
        self._tail = tail
        self._variants = tuple(variants)
        self._chunks = Chunks(max(1, CHUNK_ROWS // len(self._variants)))
        self._tails: Texts = np.empty(0, dtype=object)
        """What follows the labels in each line; meaningless where there is none."""
        self._values: NDArray[Any] = np.empty(0)
        self._known: Flags = np.empty(0, dtype=np.bool_)
        self._blocks: list[Block | None] = []
        """By chunk; None: to be rendered."""
        self._compressed = False
        """Whether a client used the compressed form: it will use it again."""

    def move(self, count: int, here: Rows, there: Rows) -> None:
        """Move rows to new places among ``count`` (see ``LabelledRows.follow``); other rows have no sample yet."""
        self._note_compressed()
        width = len(self._variants)
        for name, fresh in (
            ("_tails", np.full(count * width, "", dtype=object)),
            ("_values", np.zeros(count * width, dtype=self._values.dtype)),
            ("_known", np.zeros(count * width, dtype=np.bool_)),
        ):
            fresh.reshape(count, width)[here] = getattr(self, name).reshape(-1, width)[there]
            setattr(self, name, fresh)
        self._chunks, was = self._chunks.moved(count, here, there)
        self._blocks = [None if chunk is None else self._blocks[chunk] for chunk in was]

    def show(self, labels: Texts, values: NDArray[Any], known: Flags) -> tuple[Block, ...]:
        """Take the values of a poll and return the lines; ``labels`` are by row, the others by row and variant."""
        changed = (known != self._known) | (known & (values != self._values))
        self._values, self._known = values, known
        rows = np.flatnonzero(changed & known)
        self._tails[rows] = column_of(self._tails_of(rows))
        self._note_compressed()
        for index in self._chunks.of(np.flatnonzero(changed) // len(self._variants)):
            self._blocks[index] = None
        for index, chunk in enumerate(self._chunks):
            if self._blocks[index] is None:
                self._blocks[index] = block = Block(self._text(labels, chunk).encode())
                if self._compressed:
                    block.deflated()  # here, so that no scrape waits
        return tuple(block for block in self._blocks if block is not None and block.text)

    def _note_compressed(self) -> None:
        self._compressed |= any(block is not None and block.is_deflated for block in self._blocks)

    def _text(self, labels: Texts, chunk: slice) -> str:
        """Return the lines of a chunk."""
        width = len(self._variants)
        samples = slice(chunk.start * width, chunk.stop * width)
        known = self._known[samples]
        pieces = np.empty((len(known), 3), dtype=object)
        pieces[:, 0] = self._name
        pieces[:, 1] = np.repeat(labels[chunk], width)
        pieces[:, 2] = self._tails[samples]
        if not known.all():
            pieces = pieces[known]
        return "".join(pieces.ravel().tolist())

    def _tails_of(self, rows: Rows) -> list[str]:
        """Return what follows the labels in lines that are known."""
        # Many rows have the same value, and share its text: the last advance of all that moved in a poll, a leader.
        values, which = np.unique(self._values[rows], return_inverse=True)
        if self._tail is not None:
            tails = [self._tail(value) for value in values.tolist()]
        elif np.isinf(values).any():
            tails = [f"}} {number(value)}\n" for value in values.tolist()]
        else:
            tails = [f"}} {value!r}\n" for value in values.tolist()]
        width = len(self._variants)
        if width > 1:
            return [
                self._variants[at] + tails[of] for at, of in zip((rows % width).tolist(), which.tolist(), strict=True)
            ]
        return [tails[of] for of in which.tolist()]


class Ages:
    """The samples of one metric that grow with time, in seconds; rendered when served."""

    def __init__(
        self,
        name: str,
        labels: Texts,
        since: Floats,
        before: Ages | None = None,
        moves: tuple[Rows, Rows] | None = None,
        *,
        at_least: Floats | None = None,
    ) -> None:
        """``since`` are the moments that ages count from, NaN where not known; ``before`` are those of the last poll.

        ``moves`` are of the rows since then (see ``LabelledRows.follow``), None where no row changed. ``at_least`` are
        ages that none falls below, 0 by default.
        """
        known_now = ~np.isnan(since)
        self._since = since
        self._at_least = np.zeros(len(since)) if at_least is None else at_least
        self.chunks: Chunks
        was: Sequence[int | None]
        if before is not None and moves is None:
            self.chunks, was = before.chunks, range(len(before.chunks))
        else:
            chunks = Chunks(CHUNK_ROWS) if before is None else before.chunks
            self.chunks, was = chunks.moved(len(since), *(moves or (_NONE, _NONE)))
        earlier = [] if before is None else before.templates
        self.templates: list[_Template] = []
        for chunk, index in zip(self.chunks, was, strict=True):
            known = known_now[chunk]
            if index is not None and np.array_equal(earlier[index].known, known):
                text = earlier[index].text
            else:
                text = _text_of(name, labels[chunk][known])
            self.templates.append(_Template(known, text))

    def blocks(self, now: float) -> list[Block]:
        """Return the ages as of ``now``; the age of a time in the future is 0."""
        ages = np.maximum(self._at_least, now - self._since)
        return [
            Block(template.text % tuple(ages[chunk][template.known].tolist()))
            for template, chunk in zip(self.templates, self.chunks, strict=True)
            if template.text
        ]


class _Template(NamedTuple):
    """A format for the ages of a chunk: rendering fills in numbers alone."""

    known: Flags
    """Which of its rows have an age."""
    text: bytes


def _text_of(name: str, labels: Texts) -> bytes:
    return "".join([f"{name}{label.replace('%', '%%')}}} %.3f\n" for label in labels.tolist()]).encode()


def column_of(texts: Sequence[str]) -> Texts:
    """Return strings as a column."""
    column: Texts = np.empty(len(texts), dtype=object)
    column[:] = texts
    return column
