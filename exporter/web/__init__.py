"""HTTP: ``/metrics``, ``/-/healthy``, ``/-/ready`` and a status page."""
