"""What a process does to hold less memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from exporter import memory
from exporter.kafka.process import GROWTH_BYTES, ClientProcess

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


MIB = 2**20
V1 = "5:devices:/pod\n4:cpu,memory:/kubepods/pod/it\n0::/kubepods/pod/it\n"
V2 = "0::/kubepods/pod/it\n"
ANY = str(2**63 - 4096)
"""What version 1 tells of a cgroup without a limit."""


@pytest.mark.parametrize(
    ("cgroups", "files", "limit"),
    [
        (V2, {"kubepods/pod/it/memory.max": "max", "kubepods/pod/memory.max": f"{1024 * MIB}"}, 1024 * MIB),
        (V2, {"kubepods/pod/it/memory.max": f"{64 * MIB}", "kubepods/pod/memory.max": f"{1024 * MIB}"}, 64 * MIB),
        (V2, {"kubepods/pod/it/memory.max": "max"}, None),
        ("0::/\n", {"memory.max": f"{64 * MIB}"}, 64 * MIB),
        ("0::/../other\n", {"memory.max": f"{64 * MIB}"}, 64 * MIB),
        ("0::/\n", {}, None),
        (V1, {"memory/kubepods/pod/it/memory.limit_in_bytes": f"{64 * MIB}"}, 64 * MIB),
        (V1, {"memory/kubepods/pod/it/memory.limit_in_bytes": ANY, "memory/memory.limit_in_bytes": ANY}, None),
        (V1, {"memory/memory.limit_in_bytes": f"{64 * MIB}"}, 64 * MIB),
        (V1, {"memory.max": f"{32 * MIB}", "memory/memory.limit_in_bytes": f"{64 * MIB}"}, 32 * MIB),
    ],
)
def test_the_limit_of_the_cgroup_is_found(
    cgroups: str, files: Mapping[str, str], limit: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By both versions, by the path on the host or as a container sees it; the smallest one counts."""
    monkeypatch.setattr(memory, "ROOT", tmp_path)
    assert memory.limit() is None
    lay_out(tmp_path, cgroups, files)
    assert memory.limit() == limit


def lay_out(root: Path, cgroups: str, files: Mapping[str, str]) -> None:
    """Write what the kernel says of cgroups."""
    for name, text in (
        ("proc/self/cgroup", cgroups),
        *((f"sys/fs/cgroup/{name}", text) for name, text in files.items()),
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@pytest.mark.parametrize(("limit", "growth"), [(256 * MIB, 64 * MIB), (8192 * MIB, GROWTH_BYTES), (None, GROWTH_BYTES)])
def test_a_client_may_grow_by_a_quarter_of_the_limit(
    limit: int | None, growth: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that one that leaks is replaced before the kernel ends the container."""
    monkeypatch.setattr(memory, "ROOT", tmp_path)
    lay_out(tmp_path, "0::/\n", {"memory.max": "max" if limit is None else str(limit)})
    assert ClientProcess("east").growth_bytes == growth
