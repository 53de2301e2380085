"""A metric family, and the labels that most have."""

from __future__ import annotations

from dataclasses import dataclass

PARTITION = ("kafka_cluster", "topic", "partition")
TOPIC = ("kafka_cluster", "topic")
CLUSTER = ("kafka_cluster",)


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric family.

    ``switch`` is its name in the setting ``metrics.partition`` (None: not switched there), and
    ``default`` tells whether it is shown unless that setting says otherwise.
    """

    name: str
    type: str
    help: str
    labels: tuple[str, ...] = ()
    switch: str | None = None
    default: bool = True
