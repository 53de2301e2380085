"""Classifies deaths that a record ended: an outage, or a pause and therefore a false alarm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache

import numpy as np
from pyspark.sql import DataFrame

from exporter.domain.overrides import Entries
from exporter.domain.scoring.calibration import PARTITION, TOPIC
from exporter.domain.scoring.thresholds import PastScores
from exporter.domain.verdicts import Outage
from spark_rollups.calibration import past_scores
from spark_rollups.report.facts import JudgedStream
from spark_rollups.report.model import LABELLED, OUTAGE, PAUSE, Revival


def taken_for(
    judged: Sequence[JudgedStream], maxima: DataFrame, as_of: datetime, outages: Sequence[Outage]
) -> list[JudgedStream]:
    """Return the judged streams, each revival classified by the past of the fleet (rows of MAXIMA)."""
    known = Entries(outages)

    @cache
    def fleet_scores() -> Mapping[str, PastScores]:
        return past_scores(maxima, as_of, outages)

    def classified(row: JudgedStream) -> JudgedStream:
        revival, finding = row.finding.revival, row.finding
        if revival is None:
            return row
        if _labelled(row, revival, as_of, known):
            what: str | None = LABELLED
        elif revival.score is None:
            what = None
        else:
            scores = fleet_scores()[TOPIC if finding.partition is None else PARTITION]
            what = PAUSE if scores.pause(np.array([revival.score]))[0] > 0.5 else OUTAGE
        return replace(row, finding=replace(finding, revival=replace(revival, taken_for=what)))

    return [classified(row) for row in judged]


def _labelled(row: JudgedStream, revival: Revival, as_of: datetime, known: Entries[Outage]) -> bool:
    if revival.silent_since is None:
        return False
    since, until = revival.silent_since.timestamp(), (revival.advanced_at or as_of).timestamp()
    return any(since < one.until and until > one.since for one in known.of(row.key.cluster, row.key.topic))
