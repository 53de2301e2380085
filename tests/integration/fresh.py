"""A source whose metadata is read anew at every poll, for tests that do not wait a minute for a new partition."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from exporter.domain.polls.metadata import Metadata
from exporter.domain.ports import PollSource


class Fresh:
    """The same source, but for that."""

    def __init__(self, source: PollSource) -> None:
        self._source = source

    def metadata(self, *, fresh: bool, doubted: Collection[str] = ()) -> Metadata:  # noqa: ARG002
        return self._source.metadata(fresh=True, doubted=doubted)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)
