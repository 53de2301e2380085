"""Silences began together where chance does not bring so many of them into one span."""

import numpy as np
import pytest

from exporter.domain.scoring.simultaneous_silences import NOTICED, ORDINARY, group_overdue, group_silences, span_of
from exporter.domain.verdicts import HELD_SHARE

HOUR = 3600.0


def groups(ages: list[float], widths: list[float], streams: int = 120, ordinary: float = ORDINARY) -> list[list[int]]:
    """Return the groups of silences that began so many hours ago at the latest, and were usual so many hours."""
    since = -np.array(ages) * HOUR
    found = group_silences(since, since + np.array(widths) * HOUR, streams, HELD_SHARE, ordinary)
    return [sorted(group.members.tolist()) for group in found]


EVERY_FEW_HOURS = [3.0, 9.0, 15.0, 22.0, 28.0, 35.0, 41.0, 48.0, 54.0, 61.0, 67.0, 74.0, 80.0, 87.0, 96.0]


@pytest.mark.parametrize(
    ("ages", "widths", "streams", "expected"),
    [
        pytest.param([30.0] * 8, [1.0] * 8, 120, [range(8)], id="eight at one moment"),
        pytest.param([30.0] * 8 + [90.0], [1.0] * 9, 120, [range(8)], id="one that fell silent before is no member"),
        pytest.param([30.0] * 8 + [24.0], [1.0] * 9, 120, [range(8)], id="nor is one that did so later"),
        pytest.param([30.0] * 7 + [48.0], [1.0] * 7 + [24.5], 120, [range(8)], id="a nightly run that did not come is"),
        pytest.param([30.0] * 7 + [48.0], [1.0] * 7 + [12.0], 120, [range(7)], id="one overdue before is not"),
        pytest.param([28, 28.2, 28.5, 29, 29.5, 30, 30.5, 30.9], [1.0] * 8, 120, [range(8)], id="spread over hours"),
        pytest.param([30.0] * 5, [1.0] * 5, 10, [], id="five are too few"),
        pytest.param([30.0] * 9, [1.0] * 9, 225, [], id="nine of 225 are 4 %"),
        pytest.param(EVERY_FEW_HOURS, [1.0] * 15, 135, [], id="fifteen at unrelated moments"),
        pytest.param(EVERY_FEW_HOURS, [14.0] * 15, 135, [], id="the same that pause at night"),
        pytest.param([24.0 * n for n in range(3, 17)], [170.0] * 14, 135, [], id="weekly ones of two weeks"),
        pytest.param([30.0] * 8 + [90.0] * 7, [1.0] * 15, 120, [range(8), range(8, 15)], id="two incidents"),
        pytest.param(
            [3, 15, 28, 41, 61, 74, 96, *[50.0] * 9], [1.0] * 16, 144, [range(7, 16)], id="amid single deaths"
        ),
        pytest.param([90.0] * 9 + [80.0, 43.0, 41.0], [1.0] * 12, 120, [range(11)], id="what follows many in two days"),
    ],
)
def test_groups_of_silences(ages: list[float], widths: list[float], streams: int, expected: list[range]) -> None:
    assert sorted(groups(ages, widths, streams)) == [list(members) for members in expected]


@pytest.mark.parametrize("ordinary", [ORDINARY, NOTICED], ids=["crossed", "noticed"])
@pytest.mark.parametrize(("deaths", "streams"), [(15, 135), (6, 50)])
@pytest.mark.parametrize("widths", [(1.0,), (1.0, 6.0, 24.0, 29.0, 63.0)], ids=["always on", "all rhythms"])
def test_unrelated_deaths_are_hardly_ever_a_group(
    widths: tuple[float, ...], deaths: int, streams: int, ordinary: float
) -> None:
    """A ninth of all topics die at random moments of four days: in two of a thousand such fleets any is grouped."""
    random = np.random.default_rng(5)
    grouped = 0
    for _ in range(1000):
        ages, wide = random.uniform(3.0, 96.0, deaths), random.choice(widths, deaths)
        overdue = ages > 1.5 * wide
        grouped += bool(groups(ages[overdue].tolist(), wide[overdue].tolist(), streams, ordinary))
    assert grouped <= 2


def overdue_at_once(ages: list[float], widths: list[float], streams: int) -> list[int]:
    """Return which silences are a group because so many are overdue at once; those of six hours and more crossed."""
    since = -np.array(ages) * HOUR
    overdue = since + np.array(widths) * HOUR
    found = list(group_overdue(since, overdue, overdue < -6 * HOUR, streams, HELD_SHARE))
    return found[0].members.tolist() if found else []


HOLIDAY = [2.0, 5.0, 7.5, 9.0, 14.0, 20.0, 30.0]


@pytest.mark.parametrize(
    ("ages", "widths", "streams", "expected"),
    [
        pytest.param(HOLIDAY, [1.0] * 7, 50, range(7), id="seven of fifty, each at its own moment"),
        pytest.param(HOLIDAY, [1.0] * 7, 90, [], id="chance brings seven of ninety"),
        pytest.param(HOLIDAY[:5], [1.0] * 5, 10, [], id="five are too few"),
        pytest.param([*[3.0, 6.0, 12.0, 24.0] * 3], [1.0] * 12, 300, [], id="twelve of 300 are 4 %"),
        pytest.param([*HOLIDAY, 40.0], [1.0] * 7 + [24.0], 50, range(8), id="a run that was due since belongs to it"),
        pytest.param([*HOLIDAY, 300.0], [1.0] * 8, 50, range(7), id="what was overdue before does not"),
        pytest.param([*HOLIDAY, 44.0, 58.0, 65.0, 80.0], [1.0] * 11, 50, [], id="single deaths go on"),
        pytest.param([], [], 50, [], id="nothing is silent"),
    ],
)
def test_more_new_silences_at_once_than_chance_brings(
    ages: list[float], widths: list[float], streams: int, expected: list[int]
) -> None:
    assert overdue_at_once(ages, widths, streams) == list(expected)


@pytest.mark.parametrize(("deaths", "streams"), [(15, 135), (15, 50), (6, 50)])
@pytest.mark.parametrize("widths", [(1.0,), (1.0, 6.0, 24.0, 29.0, 63.0)], ids=["always on", "all rhythms"])
def test_unrelated_deaths_are_hardly_ever_too_many_at_once(
    widths: tuple[float, ...], deaths: int, streams: int
) -> None:
    """They die at random moments of four days, beside topics that are overdue by chance: at most 2 % are held."""
    random = np.random.default_rng(5)
    grouped = 0
    for _ in range(1000):
        living = random.poisson(0.008 * streams)
        ages = np.array([*random.uniform(3.0, 96.0, deaths), *random.uniform(2.0, 36.0, living)])
        wide = np.array([*random.choice(widths, deaths), *[1.0] * living])
        grouped += bool(overdue_at_once(ages[ages > wide].tolist(), wide[ages > wide].tolist(), streams))
    assert grouped <= 20, grouped


def test_the_span_is_what_all_members_have_in_common_or_the_shortest_that_meets_all() -> None:
    """Between the last of the last advances and the first moment that was overdue, in either order."""
    assert span_of(np.array([0.0, 40.0]), np.array([100.0, 90.0])) == (40.0, 90.0)
    assert span_of(np.array([0.0, 40.0]), np.array([10.0, 90.0])) == (10.0, 40.0)
