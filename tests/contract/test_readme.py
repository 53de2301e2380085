"""What README.md says of metrics, settings and commands is so."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

import pytest

from exporter.cli import topic_liveness
from exporter.metrics.catalogue import CATALOGUE, EXPORTER_METRICS, PARTITION_METRICS, POLLED, TOPIC_METRICS
from exporter.metrics.family import Metric
from exporter.metrics.group_catalogue import GROUP_METRICS, SWEPT
from exporter.metrics.replica_catalogue import REPLICA_METRICS
from exporter.settings import SettingsError, load_settings

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
START = "<!-- metrics: made by `make golden` from exporter/metrics/catalogue.py -->"
END = "<!-- end of metrics -->"


def table(metrics: tuple[Metric, ...]) -> str:
    """The metrics as a Markdown table."""
    rows = ["| metric | type | labels | shown | meaning |", "|---|---|---|---|---|"]
    for metric in metrics:
        shown = "always" if metric.switch is None else f"`{metric.switch}`"
        if metric.switch is not None and metric.default:
            shown += " (default)"
        labels = ", ".join(metric.labels)
        meaning = metric.help.removesuffix(POLLED).removesuffix(SWEPT).replace("|", r"\|")
        rows.append(f"| `{metric.name}` | {metric.type} | {labels} | {shown} | {meaning} |")
    return "\n".join(rows)


def tables() -> str:
    """All of the catalogue, as it stands in README.md."""
    parts = [
        "### Each partition\n\nSwitched by `metrics.partition`; none of them with `metrics.granularity: topic`.",
        table(PARTITION_METRICS),
        "### Each topic and cluster",
        table(TOPIC_METRICS),
        (
            "### Consumer groups\n\nAs of the last sweep, every `groups.interval`. With `metrics.granularity: topic` "
            "none has the label `partition`."
        ),
        table(GROUP_METRICS),
        "### Each partition of a replica\n\nOnly with the setting `replicas`: [docs/replicas.md](docs/replicas.md).",
        table(REPLICA_METRICS),
        "### The exporter itself\n\nBeside these the usual `process_*` and `python_*`.",
        table(EXPORTER_METRICS),
    ]
    return "\n\n".join(parts)


def blocks(language: str) -> list[str]:
    """Every fenced block of a language in README.md."""
    return re.findall(rf"^```{language}\n(.*?)^```", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_the_table_of_metrics_is_golden(request: pytest.FixtureRequest) -> None:
    """``make golden`` would change nothing in README.md."""
    text = README.read_text(encoding="utf-8")
    before, rest = text.split(START)
    _, after = rest.split(END)
    made = f"{before}{START}\n\n{tables()}\n\n{END}{after}"
    if request.config.getoption("--golden-update"):
        README.write_text(made, encoding="utf-8")
    assert made == README.read_text(encoding="utf-8"), "mend: make golden"


def test_no_metric_is_left_out() -> None:
    """The five tables hold the whole catalogue."""
    assert PARTITION_METRICS + TOPIC_METRICS + GROUP_METRICS + REPLICA_METRICS + EXPORTER_METRICS == CATALOGUE


def test_the_quick_start_is_two_commands() -> None:
    """The first block is ``make demo`` and ``make test``, and nothing else."""
    assert blocks("")[0].splitlines() == ["make demo", "make test"]


def test_the_smallest_configuration_is_enough(tmp_path: Path) -> None:
    """The first YAML block loads as it stands."""
    path = tmp_path / "prod.yaml"
    path.write_text(blocks("yaml")[0], encoding="utf-8")
    assert [cluster.name for cluster in load_settings(path).clusters] == ["prod"]


def test_the_configuration_shows_every_setting_with_its_default(tmp_path: Path) -> None:
    """The long YAML block loads to what the smallest one gives, and names every setting there is."""
    [block] = [block for block in blocks("yaml") if "spool_retention" in block]
    path = tmp_path / "all.yaml"
    path.write_text(block, encoding="utf-8")
    path_of_smallest = tmp_path / "smallest.yaml"
    path_of_smallest.write_text(blocks("yaml")[0] + "exporter: my-host\n", encoding="utf-8")
    settings = load_settings(path)
    assert settings == load_settings(path_of_smallest)
    for name, section in settings:
        assert re.search(rf"^{name}:", block, re.MULTILINE)
        for setting in getattr(type(section), "model_fields", {}):
            assert re.search(rf"^  {setting}:", block, re.MULTILINE), f"{name}.{setting}"


def bounds() -> list[tuple[str, str, str]]:
    """Each setting whose line in the long YAML block tells its bounds, with these."""
    [block] = [block for block in blocks("yaml") if "spool_retention" in block]
    found, section = [], ""
    for line in block.splitlines():
        section = line.partition(":")[0] if line[:1].isalpha() else section
        if told := re.match(r"  (\w+): .*# ([\d.]+[a-zA-Z]*) to ([\d.]+[a-zA-Z]*)\b", line):
            found.append((f"{section}.{told[1]}", told[2], told[3]))
    return found


def test_the_bounds_of_numbers_stand_beside_them(tmp_path: Path) -> None:
    """What lies just outside is refused at its place, all at once; the bounds themselves are not."""
    named = {
        f"{name}.{setting}" for name, section in load_settings(example(tmp_path, {})) for setting in numbers(section)
    }
    assert {setting for setting, _, _ in bounds()} == named
    for side in (0, 1):
        at = {setting: pair[side] for setting, *pair in bounds()}
        past = {setting: outside(value, larger=bool(side)) for setting, value in at.items()}
        refused = refusal(example(tmp_path, past))
        assert [setting for setting in past if f"{setting} must " not in refused] == []
        del at["history.window"]  # which must also be no shorter than poll.interval
        assert [each for each in at if f"{each} must " in refusal(example(tmp_path, {each: at[each]}))] == []


def refusal(path: Path) -> str:
    """What is said of a configuration that cannot be used."""
    try:
        load_settings(path)
    except SettingsError as error:
        return str(error)
    return ""


def numbers(section: object) -> list[str]:
    """The settings of a section that are numbers."""
    values = ((name, getattr(section, name)) for name in getattr(type(section), "model_fields", {}))
    return [name for name, value in values if type(value) in (int, float)]


def outside(value: str, *, larger: bool) -> str:
    """A value just outside a bound."""
    told = re.fullmatch(r"([\d.]+)([a-zA-Z]*)", value)
    assert told is not None
    step = 0.001 if "." in told[1] else 1
    return f"{float(told[1]) + (step if larger else -step):.7g}{told[2]}"


def example(folder: Path, values: Mapping[str, str]) -> Path:
    """The smallest configuration with some settings more."""
    sections: dict[str, dict[str, str]] = {}
    for setting, value in values.items():
        section, name = setting.split(".")
        sections.setdefault(section, {})[name] = value
    path = folder / "example.yaml"
    lines = [f"{section}: {json.dumps(settings)}\n" for section, settings in sections.items()]
    path.write_text(blocks("yaml")[0] + "".join(lines), encoding="utf-8")
    return path


def commands() -> list[str]:
    """Every call of topic-liveness in the README's blocks, without its comment."""
    return [
        line.partition("#")[0].strip()
        for block in blocks("")
        for line in block.splitlines()
        if line.startswith("topic-liveness ")
    ]


@pytest.mark.parametrize("line", commands())
def test_commands_can_be_typed_as_they_stand(line: str) -> None:
    """The command exists and knows its options."""
    _, verb, *arguments = shlex.split(line)
    with topic_liveness.make_context("topic-liveness", [verb]) as parent:
        topic_liveness.commands[verb].make_context(verb, arguments, parent=parent)


def test_held_means_one_thing_here_and_in_the_report() -> None:
    """README's table and the report's section explain a withheld judgement in the same words."""
    report = json.loads((ROOT / "tests" / "golden" / "report.json").read_text(encoding="utf-8"))
    (meaning,) = (section["meaning"] for section in report["sections"] if section["key"] == "held")
    row = re.search(r"^\| `held` \| (.*) \|$", README.read_text(encoding="utf-8"), re.MULTILINE)
    assert row is not None
    assert meaning == f"{row[1][0].upper()}{row[1][1:]}."
