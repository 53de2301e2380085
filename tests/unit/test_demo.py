"""The demo touches nothing of others."""

from pathlib import Path

import pytest

from tests.demo.jars import DemoError
from tests.demo.run import DemoFolder


def test_a_folder_of_others_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(DemoError, match=r"holds files that no demo wrote.*--folder DIR"):
        DemoFolder(tmp_path).claim()
    assert (tmp_path / "thesis.tex").read_text() == "years of work"
