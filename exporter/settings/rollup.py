"""Settings of the daily rollup: accepted false alarms and retention."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from exporter.domain.history.retention import KEPT_DAYS
from exporter.settings.rules import Seconds, Section, at_least, check_not_empty


class RollupSettings(Section):
    """What ``rollup`` passes to Spark."""

    master: Annotated[str, AfterValidator(check_not_empty)] = "local[*]"
    """Where Spark runs."""
    false_alarms_per_1000_topic_weeks: Annotated[float | None, Field(ge=0.01, le=1000.0)] = 2.0
    """0.01 to 1000. The false alarms that you accept: thresholds are fitted to them."""
    false_alarms_a_week: Annotated[float | None, Field(ge=0.01, le=1000.0)] = None
    """0.01 to 1000. The same in the whole fleet, whatever its size; in place of `false_alarms_per_1000_topic_weeks`."""
    retention: Annotated[Seconds, at_least("52w")] = KEPT_DAYS * 86400.0
    """52w to 36500d. For how long days, verdicts and other results are kept: [Tables](history.md)."""

    @model_validator(mode="after")
    def _either(self) -> Self:
        if self.false_alarms_a_week is None:
            return self
        if "false_alarms_per_1000_topic_weeks" in self.model_fields_set:
            raise ValueError("must hold false_alarms_per_1000_topic_weeks or false_alarms_a_week, and only one")
        return self.model_copy(update={"false_alarms_per_1000_topic_weeks": None})
