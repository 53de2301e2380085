"""What the daily history adds to a verdict: how it was written of late, how it usually is, and when it came back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from exporter.domain.learning.traffic_clock import HOUR, HOURS
from exporter.domain.verdicts import Verdict
from spark_rollups.report.facts import JudgedStream
from spark_rollups.report.model import CHART_DAYS, DRAWN, Chart, Day

_REVIVALS = 1000
"""Number of revivals for which the first advance is looked up."""

_DAY_HOURS = 24


class _Key(NamedTuple):
    cluster: str
    topic: str
    topic_id: str | None
    partition: int | None


_Days = dict[date, dict[str, Any]]


def with_history(
    judged: Sequence[JudgedStream],
    daily: DataFrame,
    baselines: DataFrame,
    days_seen: Mapping[str, set[date]],
    as_of: datetime,
) -> list[JudgedStream]:
    """Add charts to what needs action, and to each revival the first advance after the silence."""
    alarming = [row for row in judged if row.finding.verdict in (Verdict.DEAD, Verdict.SUSPECT)]
    drawn = {_key(row) for row in sorted(alarming, key=_rank)[:DRAWN]}
    revived = {_key(row) for row in [row for row in judged if _silent_since(row) is not None][:_REVIVALS]}
    if not drawn | revived:
        return list(judged)
    since = as_of.date() - timedelta(days=CHART_DAYS - 1)
    days = _days(daily, drawn | revived, min([since, *(_silent_day(row) for row in judged if _key(row) in revived)]))
    usual = _usual(baselines, drawn, as_of)
    charted = []
    for row in judged:
        finding, key = row.finding, _key(row)
        if key in revived and finding.revival is not None:
            advanced = replace(finding.revival, advanced_at=_first_after(days[key], finding.revival.silent_since))
            finding = replace(finding, revival=advanced)
        if key in drawn:
            seen = days_seen.get(key.cluster, set())
            begin = date.max if finding.history_start is None else finding.history_start.date()
            finding = replace(
                finding, chart=chart_of(days[key], {day for day in seen if day >= begin}, usual.get(key), as_of)
            )
        charted.append(replace(row, finding=finding))
    return charted


def _key(row: JudgedStream) -> _Key:
    return _Key(*row.key, row.finding.partition)


def _rank(row: JudgedStream) -> tuple[bool, float, str]:
    since = row.finding.expected_by
    return (row.finding.partition is not None, 0.0 if since is None else -since.timestamp(), str(row.key))


def _silent_since(row: JudgedStream) -> datetime | None:
    return None if row.finding.revival is None else row.finding.revival.silent_since


def _silent_day(row: JudgedStream) -> date:
    since = _silent_since(row)
    return date.max if since is None else since.date()


def _days(daily: DataFrame, keys: set[_Key], since: date) -> Mapping[_Key, _Days]:
    """Return the days of streams since one; the rows of the table by their date."""
    columns = [F.col(name) for name in ("date", "active", "unknown", "counted", "records", "first_ms", "hour_records")]
    rows = _of(daily.where(F.col("date") >= F.lit(since)), keys).select(*_Key._fields, *columns)
    found: dict[_Key, _Days] = defaultdict(dict)
    for row in rows.toArrow().to_pylist():
        found[_Key(*(row[name] for name in _Key._fields))][row["date"]] = row
    return found


def _of(rows: DataFrame, keys: set[_Key]) -> DataFrame:
    """Return the rows of some streams, and few others: a list of names is pushed down to the files, a join is not."""
    numbers = sorted({key.partition for key in keys if key.partition is not None})
    chosen = F.col("topic").isin(sorted({key.topic for key in keys}))
    return rows.where(chosen & (F.col("partition").isNull() | F.col("partition").isin(numbers)))


def _usual(baselines: DataFrame, keys: set[_Key], as_of: datetime) -> Mapping[_Key, tuple[float, ...]]:
    """Return the share in which each hour of the week usually is active, by the newest baseline that has a profile."""
    known = baselines.where((F.col("week") <= F.lit(as_of.date())) & F.col("log_mean").isNotNull())
    newest = F.max(F.struct("week", "slot_seconds", "profile")).alias("newest")
    rows = _of(known, keys).groupBy(*_Key._fields).agg(newest).toArrow().to_pylist()
    found = {}
    for row in rows:
        most, profile = HOUR / row["newest"]["slot_seconds"], row["newest"]["profile"]
        if len(profile) == HOURS:
            key = _Key(*(row[name] for name in _Key._fields))
            found[key] = tuple(round(min(1.0, max(0.0, slots / most)), 3) for slots in profile)
    return found


def _first_after(days: _Days, silent_since: datetime | None) -> datetime | None:
    if silent_since is None:
        return None
    advances = (at for row in days.values() for at in _advances(row) if at > silent_since)
    return min(advances, default=None)


def _advances(row: Mapping[str, Any]) -> list[datetime]:
    hours = [hour for hour in range(_DAY_HOURS) if row["active"] >> hour & 1]
    midnight = datetime.combine(row["date"], time(), UTC)
    return [midnight + timedelta(hours=h, milliseconds=ms) for h, ms in zip(hours, row["first_ms"], strict=False)]


def _day_until(hour: int, at: date, row: Mapping[str, Any]) -> Day:
    """Return a day up to the end of one of its hours: later ones may be known, where the report is of the past."""
    counted = [one for one in range(_DAY_HOURS) if row["counted"] >> one & 1]
    later = sum(records for one, records in zip(counted, row["hour_records"], strict=False) if one > hour)
    return Day(at, (row["active"] & (1 << hour + 1) - 1).bit_count(), row["records"] - later)


def chart_of(
    days: Mapping[date, Mapping[str, Any]], seen: set[date], usual: tuple[float, ...] | None, as_of: datetime
) -> Chart:
    """Return the chart of a stream as of a moment, from its ``days`` (rows of DAILY) and those that polls covered."""
    this_hour = as_of.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    last = this_hour.date()

    def day(at: date) -> Day:
        row = days.get(at)
        if row is not None:
            return _day_until(this_hour.hour if at == last else _DAY_HOURS - 1, at, row)
        return Day(at, 0, 0) if at in seen else Day(at, None, None)

    def active(hour: datetime) -> bool | None:
        row = days.get(hour.date())
        if row is None:
            return False if hour.date() in seen else None
        if row["active"] >> hour.hour & 1:
            return True
        return None if row["unknown"] >> hour.hour & 1 else False

    week = {}
    for back in range(HOURS):
        hour = this_hour - timedelta(hours=back)
        week[hour.weekday() * _DAY_HOURS + hour.hour] = active(hour)
    return Chart(
        tuple(day(last - timedelta(days=back)) for back in reversed(range(CHART_DAYS))),
        usual,
        tuple(week[hour] for hour in range(HOURS)),
    )
