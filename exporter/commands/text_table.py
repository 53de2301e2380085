"""Tables for a terminal."""

from collections.abc import Collection, Iterator, Sequence


def align(rows: Sequence[Sequence[str]], to_the_right: Collection[int] = ()) -> Iterator[str]:
    """Yield a line for each row, with the cells of each column below one another; numbers are ``to_the_right``."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = enumerate(zip(row, widths, strict=True))
        padded = (cell.rjust(width) if place in to_the_right else cell.ljust(width) for place, (cell, width) in cells)
        yield "  ".join(padded).rstrip()
