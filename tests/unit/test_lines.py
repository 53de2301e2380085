"""Lines and ages of rows that come and go: what is kept from poll to poll is what would be rendered anew."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from exporter.metrics.lines import Growing, Rendered

Topics = dict[str, int]
"""The value of each topic, with two variants each; a negative one is unknown."""


def rendered() -> Rendered[tuple[str, ...]]:
    """Nothing yet."""
    return Rendered(lambda topics: [f'{{topic="{name}"' for name in topics], variants={"m": (',side="a"', ',side="b"')})


def text(running: Rendered[tuple[str, ...]], topics: Topics) -> bytes:
    """Return what is shown of these topics."""
    values = np.array([topics[name] for name in topics for _ in "ab"], dtype=np.int64)
    since = np.where(values[::2] < 0, np.nan, -values[::2].astype(float))
    samples = running.update(tuple(topics), {"m": (values, values >= 0)}, {"age": Growing(since)})
    return b"".join(part.at(0.0).text for parts in samples.values() for part in parts)


@given(st.lists(st.dictionaries(st.sampled_from("abcdefgh%"), st.integers(-1, 2)), min_size=1, max_size=6))
def test_whatever_comes_goes_and_changes_is_shown_as_if_it_was_rendered_anew(polls: list[Topics]) -> None:
    """No line of a row that is gone, none twice, and none with an old value."""
    running = rendered()
    for topics in polls:
        assert text(running, topics) == text(rendered(), topics)


def test_what_did_not_change_stays_and_what_a_client_asks_for_compressed_is_compressed_before_it_asks_again() -> None:
    """Also where all lines are rendered anew because of a row that comes."""
    running, one = Rendered[str](lambda names: [f'{{topic="{name}"' for name in names]), np.ones(1)
    first = running.update("a", {"m": (one, one > 0)})["m"][0].at(0.0)
    first.deflated()
    assert running.update("a", {"m": (one, one > 0)})["m"][0] is first
    for rows, values in (("a", one + 1), ("ab", np.ones(2))):
        changed = running.update(rows, {"m": (values, values > 0)})["m"][0].at(0.0)
        assert changed is not first and changed.is_deflated
