"""What the bench of detection says of fleets of several seeds, and of streams of one kind."""

from __future__ import annotations

import numpy as np

from tests.bench.detection.defaults import Got, accepted_table, row
from tests.bench.detection.one_kind import BEST_RULE, kind_table


def test_a_row_of_several_fleets_is_their_mean_and_counts_false_alarms_together() -> None:
    """With the least and the most of the geometric mean; a fleet of which nothing was judged is left out."""
    one = Got(10, 1000, 900, 3.0, 1, 2, 4, np.array([10.0, 10.0]))
    other = Got(10, 1000, 1000, 4.0, 0, 0, 0, np.array([672.0, 672.0]))
    assert row([one, other, None]) == (
        "95 %",
        "3.50",
        "0.53 (0.01 to 2.93)",
        "0.15",
        "341 (10.0 to 672)",
        "341",
        "341",
        "50.0 %",
        "2 of 4",
    )
    assert row([None])[0] == "0 %"


def test_streams_of_one_kind_are_held_against_the_best_simple_rule() -> None:
    """Nightly batches are dead sooner by their schedule than by k x the largest gap, and no sooner than the oracle."""
    rows = kind_table(["nightly batch"], [3], 20)
    assert [name for _, name, *_ in rows[1:]] == ["product", BEST_RULE, "oracle"]
    shares = [[float(cell.rpartition("x ")[2]) for cell in cells] for _, _, *cells in rows[1:]]
    assert shares[1] == [1.0] * 4
    assert all(oracle - 0.1 <= own < 1.0 for own, oracle in zip(shares[0], shares[2], strict=True))


def test_who_accepts_more_false_alarms_is_alerted_sooner() -> None:
    """A row for each fleet and rate, by the same streams: the threshold and the delay fall."""
    rows = accepted_table([13], [5], [False], [1.0, 10.0], lambda _: None)
    assert [cells[:2] for cells in rows[1:]] == [("13 topics, no outages", "1"), ("13 topics, no outages", "10")]
    threshold, hours = rows[0].index("threshold at the end"), rows[0].index("geo. mean h")
    (few, many) = rows[1:]
    assert float(few[threshold]) > float(many[threshold])
    assert float(few[hours]) > float(many[hours])
