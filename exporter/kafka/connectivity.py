"""Checks whether one address answers, and its protocol version. One connection for each: polls use any broker."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from exporter.domain.ports import SourceError
from exporter.kafka.client import Client
from exporter.kafka.connect_result import ConnectResult
from exporter.kafka.credentials import Property
from exporter.kafka.msk_iam import AwsIam

_SPOKEN = re.compile(r"ApiKey ListOffsets \(2\) Versions \d+\.\.(\d+)")


class AddressCheck:
    """Connects to addresses of a cluster, each through a connection of its own. Safe for several threads."""

    def __init__(
        self, properties: Mapping[str, Property | Path], *, request_timeout: float, aws_iam: AwsIam | None = None
    ) -> None:
        self._properties, self._request_timeout, self._aws_iam = properties, request_timeout, aws_iam

    def check(self, address: str) -> ConnectResult:
        """Connect to ``address`` (``host:port``) alone, for at most twice the request timeout. Raises no Kafka error.

        Raises ValueError as ``Client`` does.
        """
        properties = {**self._properties, "bootstrap.servers": address}
        client = _Listener(properties, request_timeout=self._request_timeout, aws_iam=self._aws_iam)
        try:
            seen = client.topics()
        except SourceError as error:
            return ConnectResult(error.reason, error.detail)
        finally:
            client.close()
        return ConnectResult(visible_topics=len(seen.topics), list_offsets_version=client.spoken)


class _Listener(Client):
    """A client that also reads the protocol versions of a broker: only librdkafka's debug log has them (2.16.1)."""

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
