"""One validated, frozen ``Settings`` from YAML, environment variables and ``--bootstrap-server``.

Only ``app``, ``cli`` and the commands read the settings. All other code gets plain values.
"""
