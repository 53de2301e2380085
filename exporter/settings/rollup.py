"""Settings of the daily rollup: accepted false alarms and retention."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from exporter.domain.history.retention import LEAST_DAYS, RETENTION_DAYS
from exporter.settings.rules import Seconds, Section, at_least, check_not_empty


def _default_retention(table: str) -> float:
    return RETENTION_DAYS[table] * 86400.0


def _at_least(table: str) -> AfterValidator:
    days = LEAST_DAYS[table]
    return at_least(f"{days:g}d" if days % 7 else f"{days / 7:g}w")


class RetentionSettings(Section):
    """For how long the rollup keeps rows of its tables, in seconds."""

    windows: Annotated[Seconds, _at_least("windows")] = _default_retention("windows")
    """1d to 36500d. What polls and backfills saw of partitions."""
    coverage: Annotated[Seconds, _at_least("coverage")] = _default_retention("coverage")
    """12w to 36500d. How well clusters were polled. The fleet drops on a day by the eight weeks before it."""
    inventory: Annotated[Seconds, _at_least("inventory")] = _default_retention("inventory")
    """1w to 36500d. Which partitions there are, and their state."""
    relations: Annotated[Seconds, _at_least("relations")] = _default_retention("relations")
    """1w to 36500d. Readers, replicas and sizes of topics."""
    daily: Annotated[Seconds, _at_least("daily")] = _default_retention("daily")
    """29w to 36500d. Active hours. Baselines are made of 28 weeks, beside the present one."""
    drops: Annotated[Seconds, _at_least("drops")] = _default_retention("drops")
    """12w to 36500d. Days on which the fleet dropped."""
    baselines: Annotated[Seconds, _at_least("baselines")] = _default_retention("baselines")
    """12w to 36500d. Those that dead topics are judged by stay for as long as the topics exist."""
    maxima: Annotated[Seconds, _at_least("maxima")] = _default_retention("maxima")
    """52w to 36500d. False alarms are counted over 26 weeks, each by thresholds fitted to the 26 weeks before it."""
    calibration: Annotated[Seconds, _at_least("calibration")] = _default_retention("calibration")
    """1d to 36500d. Thresholds, and the false alarms that they gave."""
    verdicts: Annotated[Seconds, _at_least("verdicts")] = _default_retention("verdicts")
    """1d to 36500d. Verdicts with their evidence."""


class RollupSettings(Section):
    """What ``rollup`` passes to Spark."""

    master: Annotated[str, AfterValidator(check_not_empty)] = "local[*]"
    """Where Spark runs."""
    false_alarms_per_1000_topic_weeks: Annotated[float | None, Field(ge=0.01, le=1000.0)] = 2.0
    """0.01 to 1000. The false alarms that you accept: thresholds are fitted to them."""
    false_alarms_a_week: Annotated[float | None, Field(ge=0.01, le=1000.0)] = None
    """0.01 to 1000. The same in the whole fleet, whatever its size; in place of `false_alarms_per_1000_topic_weeks`."""
    retention: RetentionSettings = RetentionSettings()
    """For how long the rollup keeps rows of its tables: docs/tables.md."""

    @model_validator(mode="after")
    def _either(self) -> Self:
        if self.false_alarms_a_week is None:
            return self
        if "false_alarms_per_1000_topic_weeks" in self.model_fields_set:
            raise ValueError("must hold false_alarms_per_1000_topic_weeks or false_alarms_a_week, and only one")
        return self.model_copy(update={"false_alarms_per_1000_topic_weeks": None})
