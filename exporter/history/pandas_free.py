"""Arrow without pandas: pyarrow imports pandas with its first array where that is installed, which costs 50 MiB."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder


class _Absent(MetaPathFinder):
    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("this process leaves pandas out", name=fullname)


def leave_pandas_out() -> None:
    """Have pandas be missing from now on in this process, as far as it is not imported yet."""
    sys.meta_path.insert(0, _Absent())
