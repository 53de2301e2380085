"""The demo says PASS only where all is true, touches nothing of others, and leaves nothing of its own."""

from dataclasses import replace
from pathlib import Path

import pytest

from exporter.domain.polls.readings import State
from exporter.domain.verdicts import Verdict
from tests.demo.comparison import ExposedVerdicts, Key, as_lines, compare
from tests.demo.jars import DemoError
from tests.demo.run import DemoFolder
from tests.demo.scenario import TOPICS, partitions


def honest() -> tuple[dict[Key, Verdict], ExposedVerdicts, set[Key]]:
    """A product that tells the truth about everything."""
    published: dict[Key, Verdict] = {(topic.name, None): min(topic.truth) for topic in TOPICS}
    published |= {(topic.name, each): min(topic.partition_truth(each)) for topic, each in partitions()}
    unshown = (Verdict.LIVE, Verdict.QUIET, Verdict.LEARNING)
    verdicts = {key: one for key, one in published.items() if key[1] is None or one not in unshown}
    states: dict[Key, State] = {
        (topic.name, each): topic.state for topic, each in partitions() if topic.state is not None
    }
    return published, ExposedVerdicts(True, 1.0, verdicts, states), {("payments-legacy", None), ("orders", 7)}


def wrong(published: dict[Key, Verdict], shown: ExposedVerdicts, dead: set[Key]) -> list[str]:
    """The names of the rows that do not fit."""
    return [row.cells[0] for row in compare(published, shown, dead) if not row.fits]


def test_what_one_output_tells_wrong_is_named() -> None:
    """A false alarm, a missed death in any output, an alarm in the report alone, a state that is not shown."""
    published, shown, dead = honest()
    hidden = {key: verdict for key, verdict in (shown.verdicts or {}).items() if key != ("orders", 7)}
    states = {key: state for key, state in (shown.states or {}).items() if key[0] != "never-written"}
    assert set(wrong({}, shown, dead)) >= {topic.name for topic in TOPICS}
    assert wrong(published | {("orders", 3): Verdict.DEAD}, shown, dead) == ["orders/3"]
    assert wrong(published | {("orders", 7): Verdict.LIVE}, shown, dead) == ["orders/7"]
    assert wrong(published, replace(shown, verdicts=hidden), dead) == ["orders/7"]
    assert wrong(published, shown, dead - {("orders", 7)}) == ["orders/7"]
    assert wrong(published, shown, dead | {("nightly-batch", None)}) == ["nightly-batch", "nightly-batch/0"]
    assert wrong(published, replace(shown, states=states), dead) == ["never-written/0"]
    lines = as_lines(compare(published | {("orders", 3): Verdict.DEAD}, shown, dead))
    assert "orders/3: published as dead, not as one of: live, quiet" in lines
    assert lines.splitlines()[-1] == f"FAIL: 1 of {len(TOPICS) + 3} lines are wrong"


def test_a_folder_of_others_is_refused_and_left_alone(tmp_path: Path) -> None:
    """One with files that no demo wrote."""
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(DemoError, match=r"holds files that no demo wrote.*--folder DIR"):
        DemoFolder(tmp_path).claim()
    assert (tmp_path / "thesis.tex").read_text() == "years of work"
