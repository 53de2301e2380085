"""One validated, frozen ``Settings`` from YAML, environment variables and ``--bootstrap-server``.

Only ``app``, ``cli`` and the commands read the settings. All other code gets plain values.
"""

from typing import TYPE_CHECKING

from exporter.domain.lazy_names import lazy_names

if TYPE_CHECKING:
    from exporter.settings.dump import to_yaml
    from exporter.settings.errors import SettingsError
    from exporter.settings.exposure import exposed_in
    from exporter.settings.load import Override, load_settings
    from exporter.settings.schema import ClusterSettings, ReplicaSettings, Settings, TopicFilter

__all__ = [
    "ClusterSettings",
    "Override",
    "ReplicaSettings",
    "Settings",
    "SettingsError",
    "TopicFilter",
    "exposed_in",
    "load_settings",
    "to_yaml",
]

if not TYPE_CHECKING:
    __getattr__ = lazy_names(
        __name__,
        {
            "dump": ["to_yaml"],
            "errors": ["SettingsError"],
            "exposure": ["exposed_in"],
            "load": ["Override", "load_settings"],
            "schema": ["ClusterSettings", "ReplicaSettings", "Settings", "TopicFilter"],
        },
    )
