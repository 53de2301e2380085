"""A metric family, and the labels that most families have."""

from __future__ import annotations

from dataclasses import dataclass

PARTITION = ("kafka_cluster", "topic", "partition")
TOPIC = ("kafka_cluster", "topic")
CLUSTER = ("kafka_cluster",)


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric family.

    ``switch`` is its name in the setting ``metrics.partition`` (None: it has none), and ``default`` whether it is
    exposed without that setting.
    """

    name: str
    type: str
    help: str
    labels: tuple[str, ...] = ()
    switch: str | None = None
    default: bool = True
