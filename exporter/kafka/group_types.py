"""Types and states of groups that are no consumer groups, which librdkafka (2.16) does not tell: by kafka-python."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from exporter.domain.groups.consumer_groups import OtherGroup
from exporter.kafka.credentials import Property
from exporter.kafka.kafka_python import KafkaPythonClient
from exporter.kafka.kafka_python_answers import KafkaPythonError
from exporter.kafka.msk_iam import AwsIam


class _Types(KafkaPythonClient):
    wants = "types of groups"

    def types(self) -> Mapping[str, OtherGroup]:
        try:
            found = self._admin.list_groups()
        except self._kafka.errors.KafkaError:
            return {}
        return {
            group["group_id"]: OtherGroup(kind.lower(), (group.get("group_state") or "").lower() or None)
            for group in found
            if (kind := group.get("group_type"))
        }


def list_types(
    properties: Mapping[str, Property | Path], *, aws_iam: AwsIam | None, request_timeout: float
) -> Mapping[str, OtherGroup]:
    """Return type and state of each group, by ListGroups v5 (brokers from 4.0 on).

    Empty without kafka-python, an optional extra, and where it gets no answer.
    """
    try:
        client = _Types(properties, aws_iam=aws_iam, request_timeout=request_timeout)
    except KafkaPythonError:
        return {}
    try:
        return client.types()
    finally:
        client.close()
