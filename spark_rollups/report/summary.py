"""The sentences at the top of the report: what happened, how well it was observed, and warnings."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta, tzinfo

from exporter.domain import formatting
from exporter.domain.formatting import duration, plural
from exporter.domain.verdicts import Verdict
from spark_rollups.report.model import ACTION, ClusterCoverage, Count, Entry, Facts, Report, ReportSection
from spark_rollups.report.wording import day, moment, share

_WELL_COVERED = 0.9
_STALE = timedelta(hours=36)
"""As in the alert TopicLivenessRollupLate: a rollup a day, and the time that it takes."""


def summary(
    sections: Iterable[ReportSection], topics: Sequence[Entry], facts: Facts, zone: tzinfo, whose: str | None
) -> str:
    """Return the one sentence of the whole report, or (``whose``) of one owner."""
    counts = {section.key: section.count for section in sections}
    begin = f"In the week to {day(facts.as_of, zone)}, " if whose is None else f"{whose}: "
    compared = _compared(topics, counts["abandoned"].topics, facts)
    return f"{begin}{_news(counts)}; {compared}."


def _news(counts: Mapping[str, Count]) -> str:
    phrases = [deaths(counts["newly-dead"])]
    for count, singular, several in (
        (counts["revived"], "came back", "came back"),
        (counts["still-dead"], "is still dead", "are still dead"),
        (counts["suspect"], "is silent for longer than usual", "are silent for longer than usual"),
        (counts["abandoned"], "was abandoned before monitoring began", "were abandoned before monitoring began"),
    ):
        if count.total:
            phrases.append(f"{_count(count)} {singular if count.total == 1 else several}")
    return ", ".join(phrases[:-1]) + (" and " if len(phrases) > 1 else "") + phrases[-1]


def deaths(count: Count) -> str:
    """Return what died: ``2 topics and 1 single partition died``."""
    return f"{_count(count)} died" if count.total else "nothing died"


def _count(count: Count) -> str:
    amounts = [plural(count.topics, "topic")] if count.topics else []
    if count.partitions:
        amounts.append(plural(count.partitions, "partition" if not count.topics else "single partition"))
    return " and ".join(amounts)


def list_actions(report: Report) -> list[tuple[str, str]]:
    """Return what is to be done, the most urgent first: the place on the page, and a sentence."""
    died, suspect, still_dead = (report.section(key).count for key in ACTION)
    found = []
    if died.total:
        found.append(("action", f"Ask the owners of what died, {_count(died)}, whether it should be written."))
    if suspect.total:
        found.append(("action", f"Look at the producers of {_count(suspect)}, silent for longer than usual."))
    if still_dead.total:
        found.append(
            ("action", f"Decide on {_count(still_dead)}, dead for a week: bring the producer back, or retire.")
        )
    if report.cut_off:
        found.append(
            ("cut-off", f"Look at the replication, which is cut off for {plural(len(report.cut_off), 'topic')}.")
        )
    unreadable = report.section("unreadable")
    if unreadable.entries:
        what = _count(unreadable.count)
        found.append(("unreadable", f"See why {what} could not be read: brokers, or rights of the exporter."))
    if report.candidates:
        size = report.bytes_to_win_back
        won = "" if size is None else f": {formatting.size(size)} to win back"
        topics = plural(len(report.candidates), "topic")
        found.append(("clean-up", f"Delete {topics} that nobody needs, once the owner agrees{won}."))
    if report.ask_first:
        found.append(
            ("ask-first", f"Ask who needs {plural(len(report.ask_first), 'topic')}: silent for long, no reader known.")
        )
    return found


def _compared(topics: Sequence[Entry], abandoned: int, facts: Facts) -> str:
    now = sum(topic.finding.verdict == Verdict.DEAD for topic in topics)
    other, judged = "other " if abandoned else "", len(topics) - abandoned
    of_all = f"{now:,} of {plural(judged, f'{other}topic')} {'is' if now == 1 else 'are'} dead now"
    if not now:
        of_all = f"no {other}topic is dead now" if judged == 1 else f"none of {judged:,} {other}topics is dead now"
    if facts.week_ago_as_of is None:
        return f"{of_all}; there are no verdicts of a week ago to compare with"
    if facts.week_ago is None:
        return of_all  # of an owner
    before = facts.week_ago.get(Verdict.DEAD, 0)
    if now == before:
        return f"{of_all}, as many as a week ago"
    return f"{of_all}, {abs(now - before):,} {'more' if now > before else 'fewer'} than a week ago"


def warnings(facts: Facts, zone: tzinfo) -> Iterable[str]:
    """Return what makes the report less true than it looks."""
    if facts.asked_for is not None and facts.asked_for - facts.as_of > _STALE:
        yield (
            f"Asked for {moment(facts.asked_for, zone)}, but the newest verdicts before it are "
            f"{duration((facts.asked_for - facts.as_of).total_seconds())} older: has the rollup stopped?"
        )
    for coverage in facts.coverage:
        warning = _coverage_warning(coverage, facts, zone)
        if warning:
            yield f"{coverage.cluster}: {warning}"


def _coverage_warning(coverage: ClusterCoverage, facts: Facts, zone: tzinfo) -> str | None:
    last = coverage.last_good_poll
    if last is None:
        return (
            "no good poll is on record, so no silence is proved. Does the exporter run, and does it reach the brokers?"
        )
    blind = (facts.as_of - last).total_seconds()
    if blind > coverage.gap_limit_seconds:
        return (
            f"the last good poll was {moment(last, zone)}, {duration(blind)} before these verdicts; silence since then "
            "is not proved. Does the exporter run, and does it reach the brokers?"
        )
    if coverage.covered_share < _WELL_COVERED:
        return (
            f"only {share(coverage.covered_share)} of the week is covered by good polls; silence in the gaps is "
            "not proved."
        )
    return None
