"""What README.md and docs/ say of commands, settings, metrics, alerts and verbs is so, and the site builds."""

import html
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from documentation.hooks import PAGES
from exporter.cli import topic_liveness
from exporter.domain.exit_codes import ExitCode
from exporter.metrics.catalogue import CATALOGUE
from exporter.settings.load import load_settings
from exporter.settings.rules import find_section
from exporter.settings.schema import Settings

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
TEXTS = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in (*(ROOT / name for name in PAGES if name != "CHANGELOG.md"), *sorted((ROOT / "docs").glob("*.md")))
}
"""Every page by its path; the changelog may name what is no more."""


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def code(text: str) -> list[str]:
    fenced = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [*fenced, *re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it: every warning is an error, a missing link or anchor too."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return folder


def setting_paths() -> Iterator[str]:
    """Every setting by its path."""
    for name, field in Settings.model_fields.items():
        section = find_section(field.annotation)
        yield from [name] if section is None else (f"{name}.{own}" for own in section.model_fields)


def test_the_references_leave_nothing_out(site: Path) -> None:
    pages = {page.stem: page.read_text(encoding="utf-8") for page in site.rglob("*.html")}
    texts = {name: html.unescape(re.sub("<[^>]*>", "", page)) for name, page in pages.items()}
    assert [name for name, text in texts.items() if "made from the code:" in text or "## " in text] == []
    assert [metric.name for metric in CATALOGUE if metric.name not in texts["reference"]] == []
    assert [path for path in setting_paths() if path.rpartition(".")[2] not in texts["reference"]] == []
    assert [name for name in topic_liveness.commands if f"Usage: topic-liveness {name}" not in texts["reference"]] == []
    assert [code for code in ExitCode if code.meaning not in texts["reference"]] == []
    rules = yaml.safe_load((ROOT / "dashboards" / "alerts.yaml").read_text(encoding="utf-8"))["groups"]
    assert [
        rule["alert"] for group in rules for rule in group["rules"] if rule.get("alert", "") not in texts["alerts"]
    ] == []


@pytest.mark.parametrize("page", ["README.md", "docs/how-it-works.md"])
def test_the_evidence_that_pages_quote_is_printed_so(page: str) -> None:
    """It is a line of the golden file of evidence, and who reads the topic."""
    quoted = " ".join(re.findall(r"^> (.*)$", (ROOT / page).read_text(), re.MULTILINE))
    golden = (ROOT / "tests" / "golden" / "evidence.txt").read_text().splitlines()
    assert quoted.removesuffix("; 3 consumer groups still read it") in {line[19:] for line in golden}


def prose(text: str) -> int:
    """The words that a reader reads: of sentences and tables, not of code, commands and comments."""
    without = re.sub(r"^```.*?^```|<!--.*?-->|\]\([^)]*\)", "", text, flags=re.MULTILINE | re.DOTALL)
    return len(re.findall(r"\S*\w\S*", without))


def test_the_documentation_can_be_read_in_an_afternoon() -> None:
    pages = {page: prose(text) for page, text in TEXTS.items() if page.startswith(("docs/", "dashboards/", "README"))}
    assert len(pages) <= 15
    assert sum(pages.values()) <= 15_000, pages


def test_files_of_the_code_that_pages_name_exist() -> None:
    places = r"(?:exporter|spark_rollups|documentation|dashboards|tests|deploy)/[\w./*-]*[\w*]"
    named = {(page, path) for page, text in TEXTS.items() for span in code(text) for path in re.findall(places, span)}
    assert len(named) > 20
    assert [found for found in sorted(named) if not any(ROOT.glob(found[1]))] == []


def commands() -> list[str]:
    """Every call of topic-liveness in a fenced block, without its comment."""
    return [
        line.partition(" #")[0].partition(" | ")[0].strip()
        for text in TEXTS.values()
        for block in blocks(text, "(?:sh|bash|console)?")
        for line in block.splitlines()
        if line.startswith("topic-liveness ")
    ]


@pytest.mark.parametrize("line", commands())
def test_commands_can_be_typed_as_they_stand(line: str) -> None:
    _, verb, *arguments = shlex.split(line)
    with topic_liveness.make_context("topic-liveness", [verb]) as parent:
        topic_liveness.commands[verb].make_context(verb, arguments, parent=parent)


def test_commands_in_sentences_exist() -> None:
    missing = []
    for page, text in TEXTS.items():
        for span in code(text):
            found = re.match(r"topic-liveness ([a-z][a-z-]*)(.*)", span)
            if found is None or "\n" in span:
                continue
            command = topic_liveness.commands.get(found[1])
            options = [] if command is None else [opt for one in command.params for opt in one.opts]
            passed_on = re.findall(r"^ +(--[a-z-]+) ", command.help or "", re.MULTILINE) if command else []
            named = re.findall(r"(?<= )--[a-z-]+", found[2])
            if command is None or not set(named) <= {*options, *passed_on, "--help"}:
                missing.append((page, span))
    assert missing == []


def first_key(block: str) -> str:
    found = re.search(r"^[ -]*([\w.]+):", block, re.MULTILINE)
    assert found is not None, block
    return found[1]


def configurations() -> list[str]:
    """Every block of settings, and those in a block of the chart's values."""
    found = [(first_key(block), block) for text in TEXTS.values() for block in blocks(text, "yaml")]
    values = [yaml.safe_dump(yaml.safe_load(block)["config"]) for key, block in found if key == "config"]
    return [block for key, block in found if key in Settings.model_fields] + values


@pytest.mark.parametrize("block", configurations())
def test_configurations_load_as_they_stand(block: str, tmp_path: Path) -> None:
    """A block without clusters is completed by those that it names."""
    path = tmp_path / "prod.yaml"
    path.write_text(block if "clusters" in yaml.safe_load(block) else block + with_clusters(block), encoding="utf-8")
    assert load_settings(path).clusters


def with_clusters(block: str) -> str:
    named = {"prod", *re.findall(r"(?:cluster|source|target): (\w+)", block)}
    clusters = [{"name": name, "kafka": {"bootstrap.servers": f"{name}:9092"}} for name in sorted(named)]
    return f"clusters: {json.dumps(clusters)}\n"


def test_settings_in_sentences_exist() -> None:
    """`section.setting` in running text is a setting where the section is one, or a value of the chart."""
    known = set(setting_paths())
    sections = {path.partition(".")[0] for path in known if "." in path}
    values = yaml.safe_load((ROOT / "helm" / "topic-liveness-exporter" / "values.yaml").read_text(encoding="utf-8"))
    known |= {f"{name}.{own}" for name, section in values.items() if isinstance(section, dict) for own in section}
    spans = [
        (page, span)
        for page, text in TEXTS.items()
        if not page.startswith("helm/")
        for span in code(text)
        if re.fullmatch(r"[a-z]+\.[a-z_0-9]+", span) and not span.endswith((".py", ".log", ".lock"))
    ]
    assert [found for found in spans if found[1].partition(".")[0] in sections and found[1] not in known] == []
