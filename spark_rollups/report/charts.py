"""What the daily history adds to a verdict: how it was written of late."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from exporter.domain.verdicts import Verdict
from spark_rollups.report.model import CHART_DAYS, DRAWN, Day, Entry, TopicKey

_DAY_HOURS = 24


_KEY = (*TopicKey._fields, "partition")
_Key = tuple[str, str, str | None, int | None]
_Days = Mapping[date, Mapping[str, Any]]


def add_charts(
    judged: Sequence[Entry], daily: DataFrame, days_seen: Mapping[str, set[date]], as_of: datetime
) -> list[Entry]:
    """Add charts to the first findings that need action."""
    alarming = [row for row in judged if row.finding.verdict in (Verdict.DEAD, Verdict.SUSPECT)]
    drawn = {_key(row) for row in sorted(alarming, key=_rank)[:DRAWN]}
    if not drawn:
        return list(judged)
    days = _days(daily, drawn, as_of.date() - timedelta(days=CHART_DAYS - 1))
    charted = []
    for row in judged:
        finding, key = row.finding, _key(row)
        if key in drawn:
            begin = date.max if finding.history_start is None else finding.history_start.date()
            seen = {day for day in days_seen.get(row.cluster, set()) if day >= begin}
            finding = replace(finding, days=chart_of(days[key], seen, as_of))
        charted.append(replace(row, findings=(finding,)))
    return charted


def _key(row: Entry) -> _Key:
    return (*row.key, row.finding.partition)


def _rank(row: Entry) -> tuple[bool, float, str]:
    since = row.finding.expected_by
    return (row.finding.partition is not None, 0.0 if since is None else -since.timestamp(), str(row.key))


def _days(daily: DataFrame, keys: set[_Key], since: date) -> Mapping[_Key, _Days]:
    """Return the days of streams, and few others: a list of names is pushed down to the files, a join is not."""
    numbers = sorted({partition for *_, partition in keys if partition is not None})
    chosen = F.col("topic").isin(sorted({topic for _, topic, *_ in keys}))
    chosen &= F.col("partition").isNull() | F.col("partition").isin(numbers)
    columns = ("date", "active", "counted", "records", "hour_records")
    rows = daily.where((F.col("date") >= F.lit(since)) & chosen).select(*_KEY, *columns)
    found: dict[_Key, dict[date, Any]] = defaultdict(dict)
    for row in rows.toArrow().to_pylist():
        found[row["cluster"], row["topic"], row["topic_id"], row["partition"]][row["date"]] = row
    return found


def chart_of(days: _Days, seen: set[date], as_of: datetime) -> tuple[Day, ...]:
    """Return the last days of a stream as of a moment, from its ``days`` (rows of DAILY) and those that polls covered.

    Of the last one only what was before ``as_of``: later hours may be known, where the report is of the past.
    """
    now = as_of.astimezone(UTC)

    def day(at: date) -> Day:
        row = days.get(at)
        if row is None:
            return Day(at, 0, 0) if at in seen else Day(at, None, None)
        hour = now.hour if at == now.date() else _DAY_HOURS - 1
        counted = [one for one in range(_DAY_HOURS) if row["counted"] >> one & 1]
        later = sum(records for one, records in zip(counted, row["hour_records"], strict=False) if one > hour)
        return Day(at, (row["active"] & (1 << hour + 1) - 1).bit_count(), row["records"] - later)

    return tuple(day(now.date() - timedelta(days=back)) for back in reversed(range(CHART_DAYS)))
