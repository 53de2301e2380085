"""What settings that are read again may change while the exporter runs, and what depends on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from exporter.settings.errors import SettingsError
from exporter.settings.schema import Settings


def of_cluster(settings: Settings, name: str) -> list[object]:
    """Return all settings that the work on one cluster depends on, those of clusters compared with it included."""
    pairs = [pair for pair in settings.replicas if name in (pair.source, pair.target)]
    members = {name, *(pair.source for pair in pairs), *(pair.target for pair in pairs)}
    clusters = [cluster for cluster in settings.clusters if cluster.name in members]
    polls = [(settings.poll_of(cluster), settings.groups_of(cluster)) for cluster in clusters]
    beside = [settings.tiered, settings.inspection, settings.metrics, settings.owners, settings.history.window]
    return [pairs, clusters, polls, *beside]


def check_unchanged(before: Settings, after: Settings) -> None:
    """Raise SettingsError where a setting differs that only a restart can change."""
    fixed: Mapping[str, Callable[[Settings], object]] = {
        "exporter": lambda one: one.exporter,
        "history.enabled": lambda one: one.history.enabled,
        "history.folder": lambda one: one.history.folder,
        "web.listen": lambda one: one.web.listen,
    }
    if changed := [name for name, value in fixed.items() if value(before) != value(after)]:
        raise SettingsError(tuple(f"{name} cannot change while the exporter runs: restart it" for name in changed))
