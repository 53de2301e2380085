"""What docs/security.md shows can be used as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from exporter.domain.polls.readings import Reason
from exporter.settings.load import load_settings

PAGE = (Path(__file__).parents[2] / "docs" / "security.md").read_text(encoding="utf-8")


def test_every_configuration_on_the_page_loads(tmp_path: Path) -> None:
    """The ways in, and what the chart makes of its values, are read without a problem and name their secret files."""
    blocks = [
        yaml.safe_load(block)
        for block in re.findall(r"^```yaml\n(clusters:.*?|config:.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    ]
    files = []
    for block in blocks:
        path = tmp_path / "prod.yaml"
        path.write_text(yaml.safe_dump(block.get("config", block)))
        settings = load_settings(path)
        files += [value for cluster in settings.clusters for value in cluster.kafka.values() if isinstance(value, Path)]
    assert len(blocks) == 2
    assert len(files) == 3


def test_every_outcome_on_the_page_is_one() -> None:
    """The page names reasons that the exporter counts by."""
    outcomes = re.findall(r"^\| `([a-z-]+)` \|", PAGE, re.MULTILINE)
    assert len(outcomes) == 4
    assert set(outcomes) <= set(Reason)
