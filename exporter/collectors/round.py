"""The result of a round: requests that are sent slowly, independently of polls."""

from collections import Counter
from dataclasses import dataclass, field

from exporter.domain.polls.readings import Answers, Reason, count_failures

MAX_FAILED_ROUNDS = 3
"""How many rounds may fail before the results of earlier ones are dropped."""


@dataclass(slots=True)
class Round:
    """Cost and failures of one round of requests to a cluster. Counts are of partitions, or of their replicas."""

    cluster: str
    wants: str
    """What was asked for, in the words of a log line."""
    at: float | None = None
    """Unix seconds; None where there was nothing to ask for."""
    lookups: Counter[str] = field(default_factory=Counter)
    """By spec."""
    failures: Counter[tuple[str, Reason, int | None]] = field(default_factory=Counter)
    """By spec, reason and, where each broker was asked for itself, broker id."""
    problem: str = ""
    """Why nothing could be asked at all; for a log line."""

    def count(self, spec: str, answers: Answers) -> None:
        """Count a look-up of partitions, and those that could not be looked up."""
        self.lookups[spec] += len(answers)
        self.failures.update({(spec, reason, None): n for reason, n in count_failures(answers.reason).items()})
