"""Copies of the rules and dashboards whose links to the runbook are absolute.

    python3 -m dashboards.publish --runbook-url https://wiki.example.org/runbook --output /etc/topic-liveness/monitoring

The chart does the same by prometheusRule.runbookUrl. Needs no package.
"""

import argparse
import json
import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
RULES = ("alerts.yaml", "recording.yaml")


def runbook_link(url: str) -> dict[str, object]:
    """A dashboard's link to the runbook."""
    return {
        "icon": "doc",
        "targetBlank": True,
        "title": "Runbook",
        "tooltip": "What each alert means, and what to do",
        "type": "link",
        "url": url,
    }


def publish(runbook_url: str, output: Path) -> list[Path]:
    """Write the copies into ``output`` and return their paths. Raises ValueError where the URL is not absolute."""
    if not re.fullmatch(r'https?://[^\s"#]+', runbook_url):
        raise ValueError(f"--runbook-url must begin with https:// or http:// and have no '#', got {runbook_url!r}")
    texts = {
        name: (HERE / name)
        .read_text(encoding="utf-8")
        .replace("runbook_url: runbook.md", f"runbook_url: {runbook_url}")
        for name in RULES
    }
    for path in sorted((HERE / "grafana").glob("*.json")):
        board = json.loads(path.read_text(encoding="utf-8"))
        board["links"].insert(0, runbook_link(runbook_url))
        texts[f"grafana/{path.name}"] = json.dumps(board, indent=2, sort_keys=True) + "\n"
    (output / "grafana").mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (output / name).write_text(text, encoding="utf-8")
    return [output / name for name in texts]


def main() -> None:
    """Read the options, and say what was written."""
    parser = argparse.ArgumentParser(prog="python3 -m dashboards.publish", description=__doc__.partition("\n")[0])
    parser.add_argument("--runbook-url", required=True, metavar="URL", help="where runbook.md is read")
    parser.add_argument("--output", required=True, type=Path, metavar="DIR", help="where the copies go")
    given = parser.parse_args()
    try:
        written = publish(given.runbook_url, given.output)
    except (ValueError, OSError) as problem:
        parser.error(str(problem))
    sys.stdout.writelines(f"{path}\n" for path in written)


if __name__ == "__main__":
    main()
