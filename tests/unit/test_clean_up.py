"""What may be advised to be deleted: what is over, and what is proved to be needed by nobody."""

import math

import numpy as np
import pytest

from exporter.domain.groups.readers import Readership
from exporter.domain.judging.readers_and_copies import are_over, explain_keep

DAY = 86_400.0
NOBODY = Readership(0)


@pytest.mark.parametrize(
    ("verdict", "days", "longest", "mirrored", "over"),
    [
        ("retired", 40.0, 1.0, False, True),
        ("dead", 28.0, 1.0, False, True),
        ("dead", 3.0, 0.2, False, False),
        ("live", 0.1, 0.2, False, False),
        ("retired", 0.1, 0.2, False, False),
        ("retired", 40.0, 25.0, False, False),
        ("retired", 60.0, 25.0, False, True),
        ("retired", 40.0, math.nan, False, True),
        ("retired", math.nan, math.nan, False, False),
        ("retired", 40.0, 1.0, True, False),
    ],
)
def test_what_is_over(verdict: str, days: float, longest: float, *, mirrored: bool, over: bool) -> None:
    found = are_over(
        gone=np.array([verdict in ("dead", "retired")]),
        silence=np.array([days * DAY]),
        longest=np.array([longest * DAY]),
        mirrored=np.array([mirrored]),
    )
    assert found.tolist() == [over]


@pytest.mark.parametrize(
    ("policy", "days", "tiered", "readers", "why"),
    [
        ("delete", 7.0, False, NOBODY, ""),
        ("delete", 7.0, False, Readership(0, committed=2), ""),
        ("delete", 7.0, False, Readership(1, gone=1), None),
        ("compact", 7.0, False, Readership(1), None),
        ("delete", 7.0, False, None, "its readers are not known"),
        ("delete", 7.0, False, Readership(0, gone=1), "1 group without a member committed in it"),
        ("compact", 7.0, False, NOBODY, "it is compacted"),
        ("compact,delete", 7.0, False, NOBODY, "it is compacted"),
        ("delete", math.inf, False, NOBODY, "it is kept for ever"),
        ("delete", 7.0, True, NOBODY, "it is tiered"),
        ("delete", 7.0, None, NOBODY, "it may be tiered"),
        (
            None,
            math.nan,
            None,
            None,
            "its cleanup policy is not known; its retention is not known; it may be tiered; its readers are not known",
        ),
    ],
)
def test_why_a_topic_may_be_needed(
    policy: str | None, days: float, tiered: bool | None, readers: Readership | None, why: str | None
) -> None:
    """Advice to delete needs a proof of each; a topic that a group reads is not asked for."""
    assert explain_keep(["orders"], [policy], np.array([days * DAY]), [tiered], [readers]) == [why]


INTERNAL = [
    *("_schemas", "__consumer_offsets", "prod.schemas", "sinks.status"),
    *("app-store-changelog", "app-key-repartition", "app-KSTREAM-0000000003-repartition"),
    *("connect-configs", "my-connect-offsets"),
    *("mm2-offset-syncs.b.internal", "east.heartbeats", "west.checkpoints.internal"),
]
OTHERS = [
    *("orders", "orders.v1", "connected-cars", "user_changelogs", "schema-changes", "schemas-x"),
    *("consumer_offsets-x", "app-store-changelog-x", "app-key-repartition-x", "west.checkpoints.internal-x"),
]


@pytest.mark.parametrize("name", [*INTERNAL, *OTHERS])
def test_names_that_others_give_to_what_holds_their_state(name: str) -> None:
    [why] = explain_keep([name], ["delete"], np.array([DAY]), [False], [NOBODY])
    assert bool(why) == (name in INTERNAL)
