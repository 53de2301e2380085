"""File + environment + flag -> Settings, with every problem reported at once."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path as FilePath

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from exporter.settings.document import Document, Path, Problem, Tree, read_yaml, substitute
from exporter.settings.properties import MASK, is_secret
from exporter.settings.quantities import format_duration
from exporter.settings.schema import BROKEN_RULES, ClusterSettings, HistorySettings, PollSettings, Settings

PREFIX = "TOPIC_LIVENESS_"

_NOT_SETTINGS = re.compile(r"CACHE|\w*_SERVICE_HOST|\w*_SERVICE_PORT(_\w+)?|(\w+_)?PORT(_\d+_(TCP|UDP|SCTP)\w*)?")
"""The cache folder, and what Kubernetes sets in every container for a Service named topic-liveness-*."""

_YAML_IN_ENVIRONMENT = {("clusters",), ("metrics", "partition")}

_NEEDS_CLUSTERS = (
    "must name at least one cluster, such as `clusters: [{name: prod, kafka: "
    "{bootstrap.servers: host:9092}}]`; or pass --bootstrap-server HOST:PORT"
)


class SettingsError(Exception):
    """The configuration cannot be used. ``problems`` has one line each: place, rule, value; no secrets."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        super().__init__("\n".join([f"{count} in the configuration:", *(f"  - {problem}" for problem in problems)]))
        self.problems = problems


def load_settings(
    path: FilePath | None = None, bootstrap_server: str | None = None, environ: Mapping[str, str] | None = None
) -> Settings:
    """Return the validated settings from the YAML file ``path``, overridden by ``environ``.

    ``bootstrap_server`` (``host:port``) stands for one cluster named ``default``, and is refused beside
    clusters that are configured. Raises SettingsError with every problem found.
    """
    environ = {} if environ is None else environ
    document = Document()
    if path is not None:
        document.tree = _read_file(path, document)
        if document.problems and document.tree is None:
            raise SettingsError(tuple(_render(document, document.problems)))
    if document.tree is None:
        document.tree = {}
    if not isinstance(document.tree, dict):
        raise SettingsError((f"{path} must hold settings as `name: value`, such as `poll: {{interval: 30s}}`",))
    _overlay_environment(document, document.tree, environ)
    problems = document.problems
    if bootstrap_server is not None:
        if document.tree.get("clusters"):
            problems.append(
                Problem(("--bootstrap-server",), "cannot be given beside clusters that are configured: use one")
            )
        else:
            document.places[("clusters",)] = "--bootstrap-server"
            document.tree["clusters"] = [{"name": "default", "kafka": {"bootstrap.servers": bootstrap_server}}]
    settings = _validated(document, environ)
    if settings is None or problems:
        raise SettingsError(tuple(_render(document, problems)))
    return settings


def _read_file(path: FilePath, document: Document) -> Tree:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        document.problems.append(Problem((), f"is not UTF-8 text (byte {error.start})"))
    except OSError as error:
        document.problems.append(
            Problem((), f"cannot be read: {error.strerror}; name the configuration with --config FILE")
        )
    else:
        return read_yaml(text, str(path), document)
    document.places[()] = str(path)
    return None


def _overlay_environment(document: Document, tree: dict[str, Tree], environ: Mapping[str, str]) -> None:
    """Put ``TOPIC_LIVENESS_POLL__INTERVAL=30s`` and its like over the tree; lists are written as YAML."""
    for variable in sorted(environ):
        if not variable.startswith(PREFIX) or _NOT_SETTINGS.fullmatch(variable.removeprefix(PREFIX)):
            continue
        path: Path = tuple(variable.removeprefix(PREFIX).lower().split("__"))
        branch: Tree = tree
        for step in path[:-1]:
            if not isinstance(branch, dict):
                break
            if branch.get(str(step)) is None:
                branch[str(step)] = {}
            branch = branch[str(step)]
        if not isinstance(branch, dict):
            continue
        for place in [known for known in document.places if known[: len(path)] == path]:
            del document.places[place]
        document.places[path] = variable
        value: Tree = environ[variable]
        if path in _YAML_IN_ENVIRONMENT:
            value = read_yaml(environ[variable], variable, document, path, lines=False)
        branch[str(path[-1])] = value


def _validated(document: Document, environ: Mapping[str, str]) -> Settings | None:
    """Validate the tree, adding every problem to the document's."""
    problems = document.problems
    tree = _without_nulls(substitute(document.tree, environ, problems))
    known = {problem.path for problem in problems}
    problems.extend(_across(tree))
    try:
        return Settings.model_validate(tree)
    except ValidationError as error:
        found = [problem for details in error.errors(include_url=False) for problem in _translate(details, document)]
    problems.extend(p for p in found if not any(p.path[:length] in known for length in range(len(p.path) + 1)))
    return None


def _without_nulls(tree: Tree, depth: int = 0) -> Tree:
    """A section or setting without a value has its default; a librdkafka property without one is a mistake."""
    if isinstance(tree, dict):
        return {
            key: child if key == "kafka" else _without_nulls(child, depth + 1)
            for key, child in tree.items()
            if child is not None
        }
    return [_without_nulls(child, depth + 1) for child in tree] if isinstance(tree, list) else tree


def _across(tree: Tree) -> Iterator[Problem]:
    """Rules over several settings; what is wrong by itself is left to its own rule."""
    if not isinstance(tree, dict):
        return
    names: dict[str, int] = {}
    clusters = tree.get("clusters")
    for index, cluster in enumerate(clusters if isinstance(clusters, list) else []):
        name = cluster.get("name") if isinstance(cluster, dict) else None
        if isinstance(name, str) and names.setdefault(name, index) != index:
            yield Problem(
                ("clusters", index, "name"), f"must be unique (clusters[{names[name]}] has it too)", shown=True
            )
    poll, history = tree.get("poll"), tree.get("history")
    try:
        interval = PollSettings.model_validate(poll or {}).interval
        kept = HistorySettings.model_validate(history or {})
    except ValidationError:
        return
    if kept.enabled and kept.window < interval:
        window, interval_text = format_duration(kept.window), format_duration(interval)
        rule = f"is {window}, which must be at least poll.interval ({interval_text}): each window needs a poll"
        yield Problem(("history", "window"), rule)


def _translate(details: ErrorDetails, document: Document) -> Iterator[Problem]:
    """One pydantic error in our own words."""
    path: Path = details["loc"]
    context = details.get("ctx", {})
    match details["type"]:
        case "extra_forbidden":
            yield Problem(path, f"is not a known setting{_suggestion(path)}")
        case "missing" if path == ("clusters",):
            yield Problem(path, _NEEDS_CLUSTERS)
        case "too_short":
            if not document.value(path):
                yield Problem(path, _NEEDS_CLUSTERS)
        case "missing":
            yield Problem(path, "is required")
        case "model_type" | "model_attributes_type" | "dict_type":
            yield Problem(path, "must hold settings as `name: value`")
        case "tuple_type" | "list_type":
            yield Problem(path, "must be a list")
        case "literal_error":
            choices = str(context["expected"]).replace("'", "").replace(" or ", ", ")
            yield Problem(path, f"must be one of {choices}", shown=True)
        case "greater_than_equal":
            yield Problem(path, f"must be at least {context['ge']:g}", shown=True)
        case "less_than_equal":
            yield Problem(path, f"must be at most {context['le']:g}", shown=True)
        case "value_error":
            yield Problem(path, str(context["error"]), shown=True)
        case kind if kind == BROKEN_RULES:
            yield from (Problem((*path, key), rule, shown=True) for key, rule in context["rules"])
        case kind:
            types = {"int": "a whole number", "float": "a number", "bool": "true or false", "string": "text"}
            yield Problem(path, f"must be {types.get(kind.split('_')[0], details['msg'])}", shown=True)


def _suggestion(path: Path) -> str:
    model: type[BaseModel] = Settings
    for step in path[:-1]:
        if step == "clusters":
            model = ClusterSettings
        elif isinstance(step, str):
            annotation = model.model_fields[step].annotation
            assert isinstance(annotation, type)
            assert issubclass(annotation, BaseModel)
            model = annotation
    known = list(model.model_fields)
    close = difflib.get_close_matches(str(path[-1]), known, n=1)
    return f", did you mean {close[0]}?" if close else f"; known here: {', '.join(known)}"


def _render(document: Document, problems: list[Problem]) -> Iterator[str]:
    for path, rule, shown in problems:
        place = document.place(path)
        if not path:
            yield f"{place} {rule}"
            continue
        value = document.value(path)
        got = f", got {_spell_value(path, value)}" if shown and value is not None else ""
        yield f"{_spell(path)} {rule}{got}" + (f" (from {place})" if place else "")


def _spell_value(path: Path, value: Tree) -> str:
    """The value as written, before any ``${NAME}`` in it was replaced."""
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    if any(is_secret(str(step)) for step in path):
        return f"'{MASK}'"
    return repr(re.sub(r"[^\s,/@]+@", f"{MASK}@", str(value)))


def _spell(path: Path) -> str:
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text
