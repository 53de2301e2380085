"""The vocabulary: one word per idea, shared by every room.

Standard library only. Times are Unix seconds (float, UTC), durations are seconds, offsets are Kafka
offsets. ``None`` always means *not known*; no sentinel (-1, -1001, NaN) leaves ``exporter.kafka``.
"""

from exporter.model.groups import Group, GroupPartition, GroupState, GroupSweep
from exporter.model.kept import (
    SCHEMA_VERSION,
    Coverage,
    Inventory,
    Source,
    Window,
)
from exporter.model.readings import (
    Activity,
    Advance,
    Answer,
    Inspected,
    Metadata,
    PartitionInfo,
    PollFailure,
    Producers,
    Reading,
    Reason,
    Snapshot,
    State,
    TopicConfig,
    TopicInfo,
    TopicPartition,
)
from exporter.model.verdicts import (
    HELD_DAYS,
    HELD_FROM,
    HELD_LEAST,
    HELD_SECONDS,
    HELD_SHARE,
    RETIRED_AFTER_SECONDS,
    SUSPECT_SHARE,
    Expectation,
    Outage,
    TopicOverride,
    TopicOwner,
    Verdict,
)

__all__ = [
    "HELD_DAYS",
    "HELD_FROM",
    "HELD_LEAST",
    "HELD_SECONDS",
    "HELD_SHARE",
    "RETIRED_AFTER_SECONDS",
    "SCHEMA_VERSION",
    "SUSPECT_SHARE",
    "Activity",
    "Advance",
    "Answer",
    "Coverage",
    "Expectation",
    "Group",
    "GroupPartition",
    "GroupState",
    "GroupSweep",
    "Inspected",
    "Inventory",
    "Metadata",
    "Outage",
    "PartitionInfo",
    "PollFailure",
    "Producers",
    "Reading",
    "Reason",
    "Snapshot",
    "Source",
    "State",
    "TopicConfig",
    "TopicInfo",
    "TopicOverride",
    "TopicOwner",
    "TopicPartition",
    "Verdict",
    "Window",
]
