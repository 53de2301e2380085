"""``make demo``: the whole product on a real broker with dead topics, and its verdicts beside the truth."""

import argparse
import sys
from pathlib import Path

from tests.demo.run import demo

parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
parser.add_argument("--exit", action="store_true", help="end after the verdicts instead of serving until Ctrl-C")
parser.add_argument("--folder", type=Path, metavar="DIR", help="where the demo keeps its files")
if __name__ == "__main__":
    given = parser.parse_args()
    sys.exit(demo(given.exit, given.folder))
