"""Many similar sentences in little memory."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Sequence
from functools import lru_cache

_TOGETHER = 128
"""Number of texts compressed together. Reading one then takes some 40 us, and evidence becomes five times smaller."""

_LEVEL = 1


class PackedTexts:
    """Texts by number, compressed; they can be added only in order."""

    def __init__(self) -> None:
        self._packed: list[bytes] = []
        self._open: list[str] = []
        self._unpacked = lru_cache(8)(self._unpack)

    def __getstate__(self) -> tuple[list[bytes], list[str]]:
        """Pickle the texts without the cache of unpacked ones, which cannot be pickled."""
        return self._packed, self._open

    def __setstate__(self, state: tuple[list[bytes], list[str]]) -> None:
        self._packed, self._open = state
        self._unpacked = lru_cache(8)(self._unpack)

    def add(self, texts: Iterable[str]) -> None:
        """Append texts."""
        self._open.extend(texts)
        whole = len(self._open) // _TOGETHER * _TOGETHER
        for begin in range(0, whole, _TOGETHER):
            together = json.dumps(self._open[begin : begin + _TOGETHER], ensure_ascii=False)
            self._packed.append(zlib.compress(together.encode("utf-8", "surrogatepass"), _LEVEL))
        del self._open[:whole]

    def __getitem__(self, number: int) -> str:
        """Return a text. Raises IndexError where there is none."""
        block, place = divmod(number, _TOGETHER)
        return self._open[place] if block == len(self._packed) else self._unpacked(block)[place]

    def _unpack(self, block: int) -> Sequence[str]:
        found: Sequence[str] = json.loads(zlib.decompress(self._packed[block]).decode("utf-8", "surrogatepass"))
        return found
