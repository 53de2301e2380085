"""Secrets that stand in the configuration file itself, where everybody on the host may read it."""

from __future__ import annotations

import re
import stat
from collections.abc import Mapping
from pathlib import Path

from exporter.settings.document import Document, Tree, read_yaml
from exporter.settings.properties import is_secret

_NO_SECRET = re.compile(r".*\.(url|id|file|location|algorithm)|.*\.assertion\.claim\..*")
"""What is masked as other secrets are, to be on the safe side, and is none."""


def exposed_in(path: Path | None) -> Mapping[str, tuple[str, ...]]:
    """Return one line for each secret that every user of this host may read in the configuration ``path``, by cluster.

    Text from the environment (``${NAME}``) and from files of their own does not stand there. ``path`` is a
    configuration that was loaded, None where there is none. Raises OSError where it is gone since.
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
                f"{name}: its text stands in {path}, which every user of this host can read (mode {mode:04o}); next "
                "step: chmod o-r, or {file: PATH} or ${NAME} in its place"
                for name, value in sorted(kafka.items())
                if is_secret(name) and not _NO_SECRET.fullmatch(name.lower()) and _literal(value)
            )
    return found


def _literal(value: Tree) -> bool:
    return isinstance(value, str) and value != "" and "${" not in value.replace("$${", "")
