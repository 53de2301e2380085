"""A running exporter whose web configuration changes."""

from __future__ import annotations

from pathlib import Path

from tests.demo.broker import free_port
from tests.integration.serving import Exporter, until


def test_a_web_configuration_that_turns_bad_is_reported_until_it_is_mended(tmp_path: Path) -> None:
    """The file before it stays in force, a metric is 0 from the next scrape on, and 1 again once it can be used."""
    web, name = tmp_path / "web.yml", "topic_liveness_web_config_last_reload_successful"
    web.write_text("http_server_config: {headers: {X-Frame-Options: deny}}")
    environment = {"TOPIC_LIVENESS_WEB__CONFIG_FILE": str(web)}
    with Exporter(tmp_path, f"127.0.0.1:{free_port()}", **environment) as exporter:
        until(lambda: exporter.value(name) == 1, "the first scrape")
        web.write_text("basic_auth_users: {alice: secret}")
        until(lambda: exporter.value(name) == 0, "the refusal in the metrics")
        assert exporter.page("/metrics").headers["x-frame-options"] == "deny"
        web.write_text("http_server_config: {headers: {X-Frame-Options: sameorigin}}")
        until(lambda: exporter.value(name) == 1, "the fixed file in the metrics")
        assert exporter.page("/metrics").headers["x-frame-options"] == "sameorigin"
        assert exporter.end() == 0
