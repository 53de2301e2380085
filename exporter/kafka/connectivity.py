"""Checks whether one address answers. One connection for each: polls use any broker."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from exporter.domain.ports import SourceError
from exporter.kafka.client import Client
from exporter.kafka.connect_result import ConnectResult
from exporter.kafka.credentials import Property
from exporter.kafka.msk_iam import AwsIam


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
        client = Client(properties, request_timeout=self._request_timeout, aws_iam=self._aws_iam)
        try:
            seen = client.topics()
        except SourceError as error:
            return ConnectResult(error.reason, error.detail)
        finally:
            client.close()
        return ConnectResult(visible_topics=len(seen.topics))
