"""Takes the pictures of the documentation from the demo: ``make screenshots``."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

IMAGES = Path(__file__).parents[1] / "docs" / "images"

PICTURES = {"topic-page.png": "/topics/demo/office-hours", "report.png": "/report"}
"""File names, and the pages of the exporter."""

_ADDRESS = re.compile(r"status page +(http://\S+?)/?$")


def main() -> None:
    """Run the demo up to its verdicts, take each picture, and end the demo. Raises RuntimeError where it fails."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-u", "-m", "tests.demo", "--folder", f"{folder}/demo"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as demo:
            try:
                assert demo.stdout is not None
                address = next((found[1] for line in demo.stdout if (found := _ADDRESS.search(line))), None)
                if address is None:
                    raise RuntimeError("the demo ended before its status page was there")
                _take(address)
            finally:
                demo.send_signal(signal.SIGINT)
                demo.communicate()


def _take(address: str) -> None:
    IMAGES.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = chromium.new_page(base_url=address, viewport={"width": 1100, "height": 760})
        for name, path in PICTURES.items():
            page.goto(path)
            page.screenshot(path=IMAGES / name)
        chromium.close()


if __name__ == "__main__":
    main()
