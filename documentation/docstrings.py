"""The text that follows a name in the code, as a page shows it."""

import ast
import inspect
import itertools
from collections.abc import Sequence


def read_docstrings(body: Sequence[ast.stmt]) -> dict[str, str]:
    """Return the docstring of each name that is assigned or annotated in a module or class, on one line."""
    found = {}
    for assigned, text in itertools.pairwise(body):
        match assigned, text:
            case (
                ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(says))),
            ):
                found[name] = inspect.cleandoc(says).replace("``", "`").replace("\n", " ")
    return found
