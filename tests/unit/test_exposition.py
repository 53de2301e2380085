"""The exposition: its formats, how long it is kept, and which of its lines are rendered anew."""

import gzip
import zlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, generate_latest

from exporter.metrics.lines import AgeColumn, RowSeries
from exporter.state.exposition import Exposition, Family
from tests.unit.readings import ManualClock
from tests.unit.test_state import SWEEP, scene


def test_compressed_it_is_the_same() -> None:
    """One gzip member holds the whole, so a client that reads no further than the first loses nothing."""
    monitor, poller, _, _ = scene()
    poller.poll()
    monitor.take_sweep(SWEEP)
    member = zlib.decompressobj(zlib.MAX_WBITS | 16)
    assert member.decompress(b"".join(monitor.scrape(zipped=True))) == b"".join(monitor.scrape())
    assert member.eof and not member.unused_data


def test_within_a_second_it_is_made_once() -> None:
    """Scrapes within a second, compressed or not, show the same moment; a poll or the next second makes it anew."""
    clock, registry = ManualClock(), CollectorRegistry()
    scrapes = Counter("gathered", "How often.", registry=registry)

    def gather() -> list[Family]:
        scrapes.inc()
        return []

    exposition = Exposition(clock, gather, lambda: generate_latest(registry))

    def gathered(*, zipped: bool = False) -> bytes:
        return b"".join(exposition.pieces(zipped=zipped))

    assert b"gathered_total 1.0" in gathered()
    clock.time += 0.9
    assert b"gathered_total 1.0" in gathered()
    assert b"gathered_total 1.0" in gzip.decompress(gathered(zipped=True))
    clock.time += 0.1
    assert b"gathered_total 2.0" in gathered()
    exposition.forget()
    assert b"gathered_total 3.0" in gathered()
    clock.time -= 5
    assert b"gathered_total 4.0" in gathered(), "a clock that goes back keeps nothing"


Topics = dict[str, int]
"""The value of each topic, with two variants each; a negative one is unknown."""


def rendered() -> RowSeries[tuple[str, ...]]:
    return RowSeries(
        lambda topics: [f'{{topic="{name}"' for name in topics], variants={"m": (',side="a"', ',side="b"')}
    )


def text(running: RowSeries[tuple[str, ...]], topics: Topics) -> bytes:
    values = np.array([topics[name] for name in topics for _ in "ab"], dtype=np.int64)
    since = np.where(values[::2] < 0, np.nan, -values[::2].astype(float))
    samples = running.update(tuple(topics), {"m": (values, values >= 0)}, {"age": AgeColumn(since)})
    return b"".join(part.render(0.0).text for parts in samples.values() for part in parts)


@given(st.lists(st.dictionaries(st.sampled_from("abcdefgh%"), st.integers(-1, 2)), min_size=1, max_size=6))
def test_whatever_comes_goes_and_changes_is_shown_as_if_it_was_rendered_anew(polls: list[Topics]) -> None:
    running = rendered()
    for topics in polls:
        assert text(running, topics) == text(rendered(), topics)
