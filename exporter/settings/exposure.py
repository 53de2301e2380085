"""Finds secrets in a configuration file that every user of the host can read."""

from __future__ import annotations

import re
import stat
from collections.abc import Mapping
from pathlib import Path

from exporter.settings.document import Document, Tree, read_yaml
from exporter.settings.properties import is_secret

_NO_SECRET = re.compile(r".*\.(url|id|file|location|algorithm)|.*\.assertion\.claim\..*")
"""Properties that are masked like secrets as a precaution, but are none."""


def exposed_in(path: Path | None) -> Mapping[str, tuple[str, ...]]:
    """Return a line for each secret in the configuration ``path`` that every user of this host can read, by cluster.

    Values from the environment (``${NAME}``) and from secret files are not in the configuration. ``path`` is a
    configuration that was loaded, None where there is none. Raises OSError where it no longer exists.
    """
    if path is None or not (mode := stat.S_IMODE(path.stat().st_mode)) & stat.S_IROTH:
        return {}
    tree = read_yaml(path.read_text(encoding="utf-8-sig"), str(path), Document())
    clusters = tree.get("clusters") if isinstance(tree, dict) else None
    found: dict[str, tuple[str, ...]] = {}
    for cluster in clusters if isinstance(clusters, list) else []:
        kafka = cluster.get("kafka") if isinstance(cluster, dict) else None
        if isinstance(cluster, dict) and isinstance(kafka, dict):
            found[str(cluster.get("name"))] = tuple(
                f"{name}: its value is in {path}, which every user of this host can read (mode {mode:04o}); next "
                "step: chmod o-r, or {file: PATH} or ${NAME} in its place"
                for name, value in sorted(kafka.items())
                if is_secret(name) and not _NO_SECRET.fullmatch(name.lower()) and _literal(value)
            )
    return found


def _literal(value: Tree) -> bool:
    return isinstance(value, str) and value != "" and "${" not in value.replace("$${", "")
