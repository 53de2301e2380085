"""Does one address answer, and what does it speak? A connection for each: polls ask any broker that is up."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from exporter.domain import Reason
from exporter.domain.ports import SourceError
from exporter.kafka.client import Client
from exporter.kafka.credentials import Property
from exporter.kafka.msk_iam import AwsIam

_SPOKEN = re.compile(r"ApiKey ListOffsets \(2\) Versions \d+\.\.(\d+)")


@dataclass(frozen=True, slots=True)
class Reached:
    """What came of one address. Without a ``reason`` it answered; ``detail`` is fit for people, without secrets."""

    reason: Reason | None = None
    detail: str = ""
    visible_topics: int | None = None
    """How many topics it listed: those that this principal may Describe, internal ones too."""
    list_offsets_version: int | None = None
    """The newest version of ListOffsets that it speaks (KIP-35): 7 brings MAX_TIMESTAMP (KIP-734, Kafka 3.0)."""


def reach(
    properties: Mapping[str, Property | Path], address: str, *, request_timeout: float, aws_iam: AwsIam | None = None
) -> Reached:
    """Ask ``address`` (``host:port``) alone, for twice ``request_timeout`` at most. Raises no Kafka error.

    Raises ValueError as ``Client`` does.
    """
    client = _Listener({**properties, "bootstrap.servers": address}, request_timeout=request_timeout, aws_iam=aws_iam)
    try:
        seen = client.topics()
    except SourceError as error:
        return Reached(error.reason, error.detail)
    finally:
        client.close()
    return Reached(visible_topics=len(seen.topics), list_offsets_version=client.spoken)


class _Listener(Client):
    """A client that also hears which versions a broker told librdkafka: its debug log alone has them (2.16.1)."""

    def __init__(
        self, properties: Mapping[str, Property | Path], *, request_timeout: float, aws_iam: AwsIam | None
    ) -> None:
        self.spoken: int | None = None
        debug = ",".join(filter(None, (str(properties.get("debug", "")), "feature")))
        super().__init__({**properties, "debug": debug}, request_timeout=request_timeout, aws_iam=aws_iam)

    def log(self, level: int, template: str, *values: object) -> None:
        """Take a line of librdkafka's log."""
        # The first to answer is the address itself: others become known by its answer only.
        if self.spoken is None and (found := _SPOKEN.search(template % values if values else template)):
            self.spoken = int(found[1])
        super().log(level, template, *values)
