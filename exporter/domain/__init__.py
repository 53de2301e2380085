"""The vocabulary that all rooms share: one word for each idea.

Times are Unix seconds (float, UTC), durations are seconds, offsets are Kafka offsets. ``None`` always means *unknown*;
no sentinel (-1, -1001, NaN) leaves ``exporter.kafka``.
"""

from typing import TYPE_CHECKING

from exporter.domain.lazy_names import lazy_names

if TYPE_CHECKING:
    from exporter.domain.groups.consumer_groups import GroupState, NoTimeLag
    from exporter.domain.groups.sweep import GroupSweep
    from exporter.domain.history.rows import (
        AHEAD_SECONDS,
        FILE_BYTES,
        FILE_ROWS,
        SCHEMA_VERSION,
        Coverage,
        Inventory,
        Relation,
        Source,
        Window,
    )
    from exporter.domain.polls.metadata import Metadata, PartitionInfo, TopicConfig, TopicInfo
    from exporter.domain.polls.readings import (
        Activity,
        Advance,
        Answer,
        Inspected,
        PollFailure,
        Producers,
        Reading,
        Reason,
        State,
        TopicPartition,
    )
    from exporter.domain.polls.table import Snapshot
    from exporter.domain.replicas.comparison import (
        Comparison,
        Fault,
        Matching,
        NotCompared,
        Replica,
        ReplicaReading,
        ReplicaState,
    )
    from exporter.domain.verdicts import (
        DEAD_AT_LATEST_SECONDS,
        DEAD_BEFORE_RETIRED_SECONDS,
        HELD_DAYS,
        HELD_FROM,
        HELD_LEAST,
        HELD_SECONDS,
        HELD_SHARE,
        NOTICED_FROM,
        RETIRED_AFTER_SECONDS,
        SUSPECT_SHARE,
        Expectation,
        Outage,
        TopicOverride,
        TopicOwner,
        Verdict,
    )

__all__ = [
    "AHEAD_SECONDS",
    "DEAD_AT_LATEST_SECONDS",
    "DEAD_BEFORE_RETIRED_SECONDS",
    "FILE_BYTES",
    "FILE_ROWS",
    "HELD_DAYS",
    "HELD_FROM",
    "HELD_LEAST",
    "HELD_SECONDS",
    "HELD_SHARE",
    "NOTICED_FROM",
    "RETIRED_AFTER_SECONDS",
    "SCHEMA_VERSION",
    "SUSPECT_SHARE",
    "Activity",
    "Advance",
    "Answer",
    "Comparison",
    "Coverage",
    "Expectation",
    "Fault",
    "GroupState",
    "GroupSweep",
    "Inspected",
    "Inventory",
    "Matching",
    "Metadata",
    "NoTimeLag",
    "NotCompared",
    "Outage",
    "PartitionInfo",
    "PollFailure",
    "Producers",
    "Reading",
    "Reason",
    "Relation",
    "Replica",
    "ReplicaReading",
    "ReplicaState",
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

if not TYPE_CHECKING:
    __getattr__ = lazy_names(
        __name__,
        {
            "groups.consumer_groups": ["GroupState", "NoTimeLag"],
            "groups.sweep": ["GroupSweep"],
            "history.rows": [
                "AHEAD_SECONDS",
                "FILE_BYTES",
                "FILE_ROWS",
                "SCHEMA_VERSION",
                "Coverage",
                "Inventory",
                "Relation",
                "Source",
                "Window",
            ],
            "polls.metadata": ["Metadata", "PartitionInfo", "TopicConfig", "TopicInfo"],
            "polls.readings": [
                "Activity",
                "Advance",
                "Answer",
                "Inspected",
                "PollFailure",
                "Producers",
                "Reading",
                "Reason",
                "State",
                "TopicPartition",
            ],
            "polls.table": ["Snapshot"],
            "replicas.comparison": [
                "Comparison",
                "Fault",
                "Matching",
                "NotCompared",
                "Replica",
                "ReplicaReading",
                "ReplicaState",
            ],
            "verdicts": [
                "DEAD_AT_LATEST_SECONDS",
                "DEAD_BEFORE_RETIRED_SECONDS",
                "HELD_DAYS",
                "HELD_FROM",
                "HELD_LEAST",
                "HELD_SECONDS",
                "HELD_SHARE",
                "NOTICED_FROM",
                "RETIRED_AFTER_SECONDS",
                "SUSPECT_SHARE",
                "Expectation",
                "Outage",
                "TopicOverride",
                "TopicOwner",
                "Verdict",
            ],
        },
    )
