"""When a silence is unusual for a stream of which few gaps between records are known, or none.

Gaps are taken as exponential, with a gamma prior for their rate. After n gaps of s seconds in all, the chance of a gap
longer than t is (1 + t / (b + s))^-(a + n). One record is judged by the prior alone, ten nearly by their own gaps.
"""

import numpy as np

from exporter.domain.arrays import Codes, Flags, Floats, choose
from exporter.domain.learning.traffic_clock import NATS
from exporter.domain.verdicts import DEAD_AT_LATEST_SECONDS, VERDICT_CODES, Verdict

DAY, WEEK = 86_400.0, 7 * 86_400.0

PRIOR = 1.0, WEEK
"""The prior counts like this many gaps of this many seconds in all. Fitted to generated topics and real departures."""

SUSPECT_SCORE, DEAD_SCORE = 2.5, 3.0
"""The scores at which a silence is suspect and dead where no rollup fitted any. A silence that comes by chance
e^(-score NATS) times a week has a score."""

DEAD_AFTER_SECONDS, SUSPECT_AFTER_SECONDS = DEAD_AT_LATEST_SECONDS, DEAD_AT_LATEST_SECONDS / 2
"""The longest limits, and those of a stream without a known gap. A stream whose mean gap is more than half of its
limit has longer ones: twice its mean gap, and one and a half times."""

_MEANS_TO_DEAD, _MEANS_TO_SUSPECT = 2.0, 1.5


def find_limits(
    gaps: Floats, seconds: Floats, suspect: Floats | float = SUSPECT_SCORE, dead: Floats | float = DEAD_SCORE
) -> tuple[Floats, Floats]:
    """Return the seconds of silence past which each stream is suspect and dead.

    ``gaps`` [n] is the number of gaps known before the silence, 0 where none is; ``seconds`` [n] their sum. Of the gaps
    of a day one counts, because a burst is no rhythm. ``suspect`` and ``dead`` are scores.
    """
    counted = np.minimum(gaps, np.floor(seconds / DAY))
    known = counted > 0
    total = np.where(known, seconds, 0.0)
    mean = total / np.maximum(counted, 1.0)
    suspect_cap = np.maximum(SUSPECT_AFTER_SECONDS, _MEANS_TO_SUSPECT * mean)
    dead_cap = np.maximum(DEAD_AFTER_SECONDS, _MEANS_TO_DEAD * mean)
    dead_limit = np.minimum(_pass_score(counted, total, dead), dead_cap)
    suspect_limit = np.minimum(_pass_score(counted, total, suspect), suspect_cap)
    return np.minimum(suspect_limit, dead_limit), dead_limit


def _pass_score(gaps: Floats, seconds: Floats, score: Floats | float) -> Floats:
    """Return the seconds after which a silence comes by chance e^(-score NATS) times a week, a day at least."""
    count, total = PRIOR[0] + gaps, PRIOR[1] + seconds
    a_week = WEEK * count / total
    return np.asarray(np.maximum(total * np.expm1((np.log(a_week) + NATS * score) / count), DAY))


def judge_ages(age: Floats, trusted: Flags) -> Codes:
    """Return the verdict on streams of which only the newest record is known, as indices into VERDICTS.

    ``age`` [n] is that of the newest record in seconds, NaN where unknown. It is ``trusted`` where the end offset has
    not moved since the first poll, and the record is still there, neither preserved by a mirror nor in the future. Such
    a stream was abandoned before anybody watched: it is ``retired``, never ``dead``. All others are ``learning``.
    """
    known = np.where(trusted & ~np.isnan(age), age, 0.0)
    suspect, dead = find_limits(np.zeros(len(known)), np.zeros(len(known)))
    rules = [(known >= dead, Verdict.RETIRED), (known >= suspect, Verdict.SUSPECT)]
    return choose(rules, Verdict.LEARNING, VERDICT_CODES)
