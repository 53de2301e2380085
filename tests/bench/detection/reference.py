"""What the product would publish, without its Spark job: by the product's own core.

A test compares it with the job (``tests/spark/test_bench_product.py``).
"""

from collections.abc import Mapping, Sequence

import numpy as np

from exporter.domain.learning.drops import Drop, drop_days
from exporter.domain.learning.rest_days import DAY
from exporter.domain.scoring.calibration import FALSE_ALARMS, TOPIC, AlarmBudget, Calibration, Unusual, calibrations
from exporter.domain.scoring.weekly_scores import maxima
from exporter.domain.verdicts import HELD_FROM
from spark_rollups.stages.drops import COVERED
from tests.bench.detection.history import first_week_of
from tests.bench.detection.silences import FIRST_WEEK, Trial
from tests.bench.detection.spool import CLUSTER


def calibrations_of_topics(trial: Trial, accepted: float = FALSE_ALARMS) -> Mapping[int, Calibration]:
    """Return what each week from FIRST_WEEK on is judged by, and the week after the last one would be."""
    unusual, end = unusual_silences(trial)
    found = {}
    for number in range(end - trial.weeks + FIRST_WEEK, end + 1):
        # Silences that still last as a week begins are in no incident yet.
        ended = unusual.week_ended < number
        made = calibrations(unusual.select(ended), number, AlarmBudget(accepted))
        found[number - end + trial.weeks] = next(one for one in made if one.kind == TOPIC)
    return found


def unusual_silences(trial: Trial) -> tuple[Unusual, int]:
    """Return the largest unusual silence of each topic, week of begin and week of end, and the week after the trial.

    As the job keeps them: also those in outages and incidents, which a product cannot know.
    """
    first = first_week_of(trial.units.fleet)
    found = maxima(trial.history.hours, trial.history.baselines, range(first, first + trial.weeks))
    own = found.week == found.week_ended
    counts = np.bincount((found.week - first)[own], minlength=trial.weeks)
    some = np.flatnonzero(found.score > HELD_FROM)
    unusual = Unusual(
        np.full(len(some), TOPIC),
        np.full(len(some), CLUSTER),
        found.stream[some].astype(np.int64),
        found.week[some],
        found.week_ended[some],
        found.score[some],
        found.silent_from[some],
        found.overdue[some],
        {(TOPIC, CLUSTER, first + week): int(count) for week, count in enumerate(counts) if count},
        np.zeros(len(some), np.bool_),
    )
    return unusual, first + trial.weeks


def drops(trial: Trial) -> Sequence[Drop]:
    fleet, hours = trial.units.fleet, trial.history.hours
    first, days = round(fleet.start / DAY), fleet.weeks * 7
    active = np.zeros((len(trial.units), days), np.int64)
    mine = hours[hours.active]
    np.add.at(active, (mine.stream, mine.hour // 24 - first), 1)
    known = np.where(active.any(1), np.argmax(active > 0, axis=1), days)
    seen = np.full(days, 24.0)
    for begin, end in fleet.unseen:
        for day in range(int(begin // 24), min(int(end // 24) + 1, days)):
            seen[day] -= max(0.0, min(end, 24.0 * day + 24.0) - max(begin, 24.0 * day))
    names = np.array(trial.units.names, object)
    found = drop_days(active, known, seen >= 24.0 * COVERED, range(days))
    return [
        Drop(CLUSTER, first + one.day, len(one.topics), one.judged, frozenset(names[one.topics].tolist()))
        for one in found
    ]
