"""One validated, frozen ``Settings`` from YAML, environment variables and ``--bootstrap-server``.

Only ``app``, ``cli`` and the commands read the settings. All other code gets plain values.
"""

from exporter.settings.dump import to_yaml
from exporter.settings.exposure import exposed_in
from exporter.settings.load import Override, SettingsError, load_settings
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
