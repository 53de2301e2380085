"""Loads Settings from file, environment and options, and reports all problems at once."""

import difflib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from exporter.domain.formatting import spell_duration
from exporter.secret_files import may_be_secret
from exporter.settings.delivery import WRITTEN_OUT
from exporter.settings.document import Document, Path, Problem, Tree, read_yaml, substitute
from exporter.settings.errors import SettingsError
from exporter.settings.properties import MASK
from exporter.settings.rules import BROKEN_RULES, find_section
from exporter.settings.schema import ReplicaSettings, Settings

PREFIX = "TOPIC_LIVENESS_"

_NOT_SETTINGS = re.compile(
    r"CACHE|(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)", re.ASCII
)
"""The cache folder, and variables that Kubernetes sets for a Service named topic-liveness-*."""


def _lists_in(section: type[BaseModel], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of each setting that is a list, in a section and in those below it."""
    for name, field in section.model_fields.items():
        if get_origin(field.annotation) is tuple:
            yield (*above, name)
        elif (inner := find_section(field.annotation)) is not None:
            yield from _lists_in(inner, (*above, name))


_WRITTEN_AS_YAML = frozenset(_lists_in(Settings))
"""Settings whose variables and options hold YAML."""

_MOST_SHOWN = 200
"""Of a value with more characters a message shows the length alone."""

_NEEDS_CLUSTERS = (
    "must name at least one cluster, such as `clusters: [{name: prod, kafka: "
    "{bootstrap.servers: host:9092}}]`; or pass --bootstrap-server HOST:PORT"
)


def load_settings(
    path: FilePath | None = None,
    bootstrap_server: str | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    overrides: Sequence[tuple[str, str, str | None]] = (),
    with_clusters: bool = True,
) -> Settings:
    """Return the validated settings: the YAML file ``path``, overridden by ``environ``, overridden by ``overrides``.

    ``overrides`` are options with their setting and value, such as ``("--horizon", "backfill.horizon", "56d")``; None
    is not given. ``bootstrap_server`` (``host:port``) gives one cluster named ``default``, and is an error where
    clusters are configured. Without ``with_clusters`` clusters are ignored: commands that use only history need neither
    brokers nor passwords. Raises SettingsError with every problem found.
    """
    environ = {} if environ is None else environ
    document = Document()
    tree = {} if path is None else _read_file(path, document)
    if tree is None and document.problems:
        raise SettingsError(tuple(_render(document)))
    if not isinstance(tree, dict | None):
        raise SettingsError((f"{path} must hold settings as `name: value`, such as `poll: {{interval: 30s}}`",))
    document.tree = tree = tree or {}
    _overlay_environment(document, tree, environ)
    for option, setting, value in overrides:
        if value is not None:
            _put(document, tree, tuple(setting.split(".")), value, option)
    if bootstrap_server is not None:
        if tree.get("clusters"):
            rule = "cannot be given beside clusters that are configured: use one"
            document.problems.append(Problem(("--bootstrap-server",), rule))
        else:
            document.places["clusters",] = "--bootstrap-server"
            tree["clusters"] = [{"name": "default", "kafka": {"bootstrap.servers": bootstrap_server}}]
    if not with_clusters:
        tree.pop("clusters", None)
    if with_clusters and not tree.get("clusters") and ("clusters",) not in (one.path[:1] for one in document.problems):
        document.problems.append(Problem(("clusters",), _NEEDS_CLUSTERS))
    settings = _validated(document, environ)
    if settings is None or document.problems:
        raise SettingsError(tuple(_render(document)))
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
    """Apply variables such as ``TOPIC_LIVENESS_POLL__INTERVAL=30s`` to the tree; lists are YAML."""
    for variable in sorted(environ):
        name = variable.removeprefix(PREFIX)
        if name == variable or _NOT_SETTINGS.fullmatch(name):
            continue
        _put(document, tree, tuple(name.lower().split("__")), environ[variable], variable)


def _put(document: Document, tree: dict[str, Tree], path: tuple[str, ...], text: str, place: str) -> None:
    """Set one value; it is a problem where something above it is no section."""
    branch = tree
    for depth, step in enumerate(path[:-1]):
        if branch.get(step) is None:
            branch[step] = {}
            document.places[path[: depth + 1]] = place
        deeper = branch[step]
        if not isinstance(deeper, dict):
            document.problems.append(
                Problem(path, f"cannot be set: {_spell(path[: depth + 1])} has a value, set that as a whole")
            )
            document.places[path] = place
            return
        branch = deeper
    for replaced in [known for known in document.places if known[: len(path)] == path]:
        del document.places[replaced]
    document.places[path] = place
    branch[path[-1]] = read_yaml(text, place, document, path) if path in _WRITTEN_AS_YAML else text


def _validated(document: Document, environ: Mapping[str, str]) -> Settings | None:
    """Validate the tree, and add every problem to those of the document."""
    problems = document.problems
    tree = substitute(document.tree, environ, problems)
    known = {problem.path for problem in problems}
    try:
        settings = Settings.model_validate(tree)
    except ValidationError as error:
        found = [problem for details in error.errors(include_url=False) for problem in _translate(details)]
    else:
        problems.extend(_across(settings))
        return settings
    problems.extend(p for p in found if not any(p.path[:length] in known for length in range(len(p.path) + 1)))
    return None


def _across(settings: Settings) -> Iterator[Problem]:
    """Check rules over several settings, where each of them is right by itself."""
    names: dict[str, int] = {}
    for index, cluster in enumerate(settings.clusters):
        if (first := names.setdefault(cluster.name, index)) != index:
            yield Problem(("clusters", index, "name"), f"must be unique (clusters[{first}] has it too)", shown=True)
    known = f"must be one of the clusters ({', '.join(sorted(names))})"
    for section in ("overrides", "outages", "calendars", "owners"):
        for index, entry in enumerate(getattr(settings, section) if names else ()):
            if entry.cluster is not None and entry.cluster not in names:
                yield Problem((section, index, "cluster"), known, shown=True)
    yield from _pairs(settings.replicas, names, known)
    if settings.history.enabled:
        yield from _windows(settings)


def _pairs(replicas: Sequence[ReplicaSettings], names: Collection[str], known: str) -> Iterator[Problem]:
    pairs: dict[tuple[str, str], int] = {}
    for index, pair in enumerate(replicas):
        for side in ("source", "target"):
            if names and getattr(pair, side) not in names:
                yield Problem(("replicas", index, side), known, shown=True)
        if (first := pairs.setdefault((pair.source, pair.target), index)) != index:
            rule = f"must be another pair than replicas[{first}]: bring both together by include or pattern"
            yield Problem(("replicas", index), rule)


def _windows(settings: Settings) -> Iterator[Problem]:
    window = spell_duration(settings.history.window)
    for interval, path in [
        (settings.poll.interval, ("poll", "interval")),
        *(
            (one.poll.interval, ("clusters", index, "poll", "interval"))
            for index, one in enumerate(settings.clusters)
            if "interval" in one.poll.model_fields_set
        ),
    ]:
        if interval > settings.history.window:
            yield Problem(path, f"must be at most history.window ({window}): each window needs a poll", shown=True)


def _translate(details: ErrorDetails) -> Iterator[Problem]:
    path: Path = details["loc"]
    context = details.get("ctx", {})
    match details["type"]:
        case "extra_forbidden":
            yield Problem(path, f"is not a known setting{_suggestion(path)}")
        case "missing":
            yield Problem(path, "is required")
        case "model_type" | "model_attributes_type" | "dict_type":
            yield Problem(path, "must hold settings as `name: value`")
        case "tuple_type" | "list_type":
            yield Problem(path, "must be a list, such as [a, b]")
        case "literal_error":
            choices = str(context["expected"]).replace("'", "").replace(" or ", ", ")
            yield Problem(path, f"must be one of {choices}", shown=True)
        case "greater_than_equal":
            yield Problem(path, f"must be at least {context['ge']:g}", shown=True)
        case "less_than_equal":
            yield Problem(path, f"must be at most {context['le']:g}", shown=True)
        case "value_error":
            rule = str(context["error"])
            yield Problem(path, rule, shown=rule.startswith("must"))
        case kind if kind == WRITTEN_OUT:
            yield Problem(path, "must be {file: PATH}, a file that holds the secret")
        case kind if kind == BROKEN_RULES:
            yield from (Problem((*path, key), rule, shown=rule.startswith("must")) for key, rule in context["rules"])
        case kind:
            types = {"int": "a whole number", "float": "a number", "bool": "true or false", "string": "text"}
            yield Problem(path, f"must be {types.get(kind.split('_')[0], details['msg'])}", shown=True)


def _suggestion(path: Path) -> str:
    section: type[BaseModel] = Settings
    for step in path[:-1]:
        if isinstance(step, str):
            section = find_section(section.model_fields[step].annotation) or section
    known = list(section.model_fields)
    close = difflib.get_close_matches(str(path[-1]), known, n=1)
    return f", did you mean {close[0]}?" if close else f"; known here: {', '.join(known)}"


def _render(document: Document) -> Iterator[str]:
    for path, rule, shown in document.problems:
        place = document.place(path)
        if not path:
            yield f"{place} {rule}"
            continue
        value = document.value(path)
        got = f", got {_spell_value(path, value)}" if shown and value is not None else ""
        yield f"{_spell(path)} {rule}{got}" + (f" (from {place})" if place else "")


def _spell_value(path: Path, value: Tree) -> str:
    """Return the value as written, with any ``${NAME}``."""
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    if any(may_be_secret(str(step)) for step in path):
        return f"'{MASK}'"
    if len(str(value)) > _MOST_SHOWN:
        return f"a text of {len(str(value))} characters"
    shown = re.sub(r"(\w+://)?[^\s,]*@", rf"\1{MASK}@", str(value))
    return repr(re.sub(r"(://[^\s?]*\?)\S+", rf"\1{MASK}", shown))


def _spell(path: Path) -> str:
    """Return a path as people write it, without what a secret is said to contain, or a key that lost its colon."""
    text = ""
    for step, above in zip(path, (None, *path), strict=False):
        if may_be_secret(str(above)):
            break
        name = f"[{step}]" if isinstance(step, int) else re.sub(r"(?s)[^\w.-].*", "...", step)
        text += f".{name}" if text and isinstance(step, str) else name
    return text


def dump_yaml(settings: Settings) -> str:
    """Return every setting in force. Secrets are ``***``."""
    return yaml.safe_dump(_written(settings.model_dump(mode="json")), sort_keys=False, width=100)


def _written(value: Any) -> Any:
    """Return a tree without settings that are None, and texts as the file has them."""
    if isinstance(value, dict):
        return {name: _written(each) for name, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_written(each) for each in value]
    return value.replace("${", "$${") if isinstance(value, str) else value
