"""Parses configuration text into a tree of plain text, with the place of every value.

Scalars stay as written, so that YAML does not turn ``no``, ``0123`` and ``12:30`` into other values: the type of the
setting decides. Only ``null`` becomes None. A key without a value is a problem: it may have lost its colon.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import yaml

Path = tuple[str | int, ...]
Tree = dict[str, "Tree"] | list["Tree"] | str | None

_NULL = "tag:yaml.org,2002:null"
_INVALID = "is not valid YAML; a value that starts with one of * & ! % @ ` needs quotes"

_VARIABLE = re.compile(r"\$(\$\{)|\$\{([A-Za-z_][A-Za-z0-9_]*)\}|\$\{")


class Problem(NamedTuple):
    """A setting that breaks a rule; ``shown`` where the message may contain its value."""

    path: Path
    rule: str
    shown: bool = False


@dataclass(slots=True)
class Document:
    """A configuration before validation.

    ``places`` maps a path to its origin (``prod.yaml:12``, an environment variable). A value without an origin has that
    of its parent.
    """

    tree: Tree = None
    places: dict[Path, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def place(self, path: Path) -> str | None:
        """Return the origin of the value at ``path``, or of its parent."""
        for length in range(len(path), -1, -1):
            if (place := self.places.get(path[:length])) is not None:
                return place
        return None

    def value(self, path: Path) -> Tree:
        """Return the text or branch at ``path`` as written, None where there is none."""
        branch = self.tree
        for step in path:
            if isinstance(branch, dict) and step in branch:
                branch = branch[str(step)]
            elif isinstance(branch, list) and isinstance(step, int) and step < len(branch):
                branch = branch[step]
            else:
                return None
        return branch


def read_yaml(text: str, origin: str, document: Document, at: Path = ()) -> Tree:
    """Return the YAML ``text`` as a tree, and add places and problems to ``document``.

    Messages never quote the text, because it may contain a password.
    """
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        document.places[at] = origin
        return None if node is None else _Reader(loader, origin, document).read(node, at)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        document.places[at] = origin if mark is None else f"{origin}:{mark.line + 1}"
        document.problems.append(Problem(at, _INVALID))
        return None
    except RecursionError:
        document.places[at] = origin
        document.problems.append(Problem(at, "is nested too deeply"))
        return None


_NO_VALUE = "has no value: give it one, leave it out, or write null for its default"
_NO_PROPERTY_VALUE = "has no value: give it one, or leave it out"


@dataclass(slots=True)
class _Reader:
    loader: yaml.SafeLoader
    origin: str
    document: Document

    def read(self, node: yaml.Node, path: Path) -> Tree:
        if path not in self.document.places:
            self.document.places[path] = self._place(node)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.read(child, (*path, index)) for index, child in enumerate(node.value)]
        if node.tag == _NULL and not node.value:
            self.document.problems.append(Problem(path, _NO_PROPERTY_VALUE if "kafka" in path else _NO_VALUE))
        return None if node.tag == _NULL else str(node.value)

    def _mapping(self, node: yaml.MappingNode, path: Path) -> Tree:
        lines: dict[str, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self.document.problems.append(Problem(path, "must have plain keys"))
            elif key.value in lines:
                rule = f"is given twice (first on line {lines[key.value]})"
                self.document.problems.append(Problem((*path, key.value), rule))
            else:
                lines[key.value] = key.start_mark.line + 1
        self.loader.flatten_mapping(node)  # what `<<` merges comes before the keys that are written here
        written = {key.value: (key, child) for key, child in node.value if isinstance(key, yaml.ScalarNode)}
        node.value = list(written.values())
        branch: dict[str, Tree] = {}
        for key, child in node.value:
            self.document.places[*path, key.value] = self._place(key)
            branch[key.value] = self.read(child, (*path, key.value))
        return branch

    def _place(self, node: yaml.Node) -> str:
        return f"{self.origin}:{node.start_mark.line + 1}"


def substitute(tree: Tree, environ: Mapping[str, str], problems: list[Problem], at: Path = ()) -> Tree:
    """Return ``tree`` with ``${NAME}`` replaced from ``environ``. ``$${`` is an escaped ``${``."""
    if isinstance(tree, dict):
        return {key: substitute(child, environ, problems, (*at, key)) for key, child in tree.items()}
    if isinstance(tree, list):
        return [substitute(child, environ, problems, (*at, index)) for index, child in enumerate(tree)]
    if tree is None:
        return None

    def replace(match: re.Match[str]) -> str:
        escaped, name = match.groups()
        if escaped:
            return "${"
        if name is None:
            problems.append(Problem(at, "has a '${' that is not followed by NAME}: write '$${' for a plain '${'"))
        elif name not in environ:
            problems.append(Problem(at, f"needs the environment variable {name}, which is not set"))
        else:
            return environ[name]
        return ""

    return _VARIABLE.sub(replace, tree)
