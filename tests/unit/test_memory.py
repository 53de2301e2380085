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


POLLS = """
from exporter.memory import GivingBack, resident
giving = GivingBack()
giving.after_a_poll()
for mib in (4, 64, 4):
    freed = [bytes(1000) for _ in range(mib * 1000)]
    last = bytes(1000)
    del freed
    held = resident()
    giving.after_a_poll()
    print((held - resident()) // 2**20)
"""


def test_memory_is_given_back_where_a_poll_left_much_of_it() -> None:
    """A little stays for the next poll, which would have to get it page by page."""
    done = subprocess.run([sys.executable, "-c", POLLS], stdout=subprocess.PIPE, text=True, check=True)
    little, much, little_again = map(int, done.stdout.split())
    assert little == little_again == 0
    assert much > 50
