"""What a process does to hold less memory."""

from __future__ import annotations

import subprocess
import sys

SERVES = """
import exporter.cli
from exporter.memory import share_the_heap
share_the_heap()
import pyarrow
print(pyarrow.default_memory_pool().backend_name, pyarrow.system_memory_pool().backend_name)
"""


def test_arrow_takes_memory_as_all_else_does() -> None:
    """The command has not imported pyarrow before ``serve`` says so: Arrow chooses its heap then, also for reading."""
    done = subprocess.run([sys.executable, "-c", SERVES], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.split() == ["system", "system"]
