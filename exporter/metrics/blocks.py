"""Blocks of an exposition: text that is rendered once, and compressed once."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable

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

    def at(self, now: float) -> Block:  # noqa: ARG002 - of the same form as Ages
        """Return the text as of ``now``, which is always the same."""
        return self

    def deflated(self) -> bytes:
        """Return the text as deflate data that ends with a byte and refers to nothing before it."""
        if self._deflated is None:
            packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
            self._deflated = packer.compress(self.text) + packer.flush(zlib.Z_SYNC_FLUSH)
        return self._deflated


def gzipped(blocks: Iterable[Block]) -> list[bytes]:
    """Return the blocks as one gzip stream, in pieces.

    A single member: many clients, httpx among them, stop reading after the first member.
    """
    pieces, crc, size = [_GZIP_HEADER], 0, 0
    for block in blocks:
        pieces.append(block.deflated())
        crc = zlib.crc32(block.text, crc)
        size += len(block.text)
    pieces.append(_END_OF_STREAM + struct.pack("<II", crc, size & 0xFFFF_FFFF))
    return pieces
