"""Clients that are refused: nothing is tried again between polls."""

import json
import subprocess
import sys

from tests.integration.secured import WRONG, Secured
from tests.programs import ROOT

ALONE = """
import json, sys, time
from pathlib import Path
from tests.integration.watch import Watch

def threads():
    count = 0
    for task in Path("/proc/self/task").glob("*/comm"):
        try:
            count += task.read_text().startswith("rdk:broker")
        except OSError:  # threads come and go
            pass
    return count

properties = json.loads(sys.argv[1])
watch = Watch(properties.pop("bootstrap.servers"), [".*"], timeout=4.0, **properties)
for poll in range(2):
    print(watch.fail().reason, "connected" if threads() else "gone", flush=True)
    while threads():
        time.sleep(0.02)
    print("gone", flush=True)
"""


def test_refused_credentials_are_not_tried_between_polls(secured: Secured) -> None:
    """A refused client goes away by itself: a password tried once a second would lock the account."""
    properties = json.dumps(secured.by_password("PLAIN", password=WRONG))
    command = [sys.executable, "-c", ALONE, properties]
    alone = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    assert alone.stdout.splitlines() == ["authentication-failed connected", "gone"] * 2
