"""Hooks of mkdocs: pages from files outside of docs/, and the references made from the code."""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from documentation import references

ROOT = Path(__file__).parents[1]

PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "dashboards/runbook.md": "runbook.md",
    "helm/topic-liveness-exporter/README.md": "helm-chart.md",
}
"""Files of the repository that are pages of the site too."""

REFERENCES: Mapping[str, Callable[[], str]] = {
    "settings": references.describe_settings,
    "metrics": references.describe_metrics,
    "commands": references.describe_commands,
    "exit codes": references.describe_exit_codes,
    "spool": references.describe_spool,
    "tables": references.describe_tables,
    "alerts": references.list_alerts,
    "api": references.list_paths,
}
"""What replaces a mark in a page, such as ``<!-- made from the code: settings -->``."""

MARK = re.compile(r"<!-- made from the code: ([a-z ]+) -->")
_REPOSITORY = re.compile(r"<!-- in the repository only -->\n.*?<!-- to here -->\n\n", re.DOTALL)
_LINK = re.compile(r"(!?\[[^\]]*\])\(([^)#\s]*)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside of docs/."""
    for path, name in PAGES.items():
        files.append(File.generated(config, name, content=(ROOT / path).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - mkdocs' names
    """Write the references in place of their marks, and turn links between files into links between pages."""
    sources = {name: path for path, name in PAGES.items()}
    source = sources.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    return MARK.sub(lambda found: REFERENCES[found[1]](), relink(_REPOSITORY.sub("", markdown), source))


def relink(markdown: str, source: str) -> str:
    """Return the text with its links as the site needs them. ``source`` is its path in the repository.

    A file that is no page of the site keeps its name and loses its link. Raises PluginError where a file is missing.
    """

    def link(found: re.Match[str]) -> str:
        text, target, anchor = found[1], found[2], found[3] or ""
        if not target or re.match(r"[a-z]+:", target):
            return found[0]
        path = os.path.normpath(os.path.join(os.path.dirname(source), target))  # noqa: PTH118, PTH120 - no file yet
        if not (ROOT / path).exists():
            raise PluginError(f"{source} links to {target}, which does not exist")
        if path in PAGES:
            return f"{text}({PAGES[path]}{anchor})"
        if path.startswith("docs/"):
            return f"{text}({path.removeprefix('docs/')}{anchor})"
        return text[1:-1]

    return _LINK.sub(link, markdown)
