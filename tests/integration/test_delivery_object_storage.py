"""Reports in object storage that are sent to people: a real S3 server and a real hook."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.delivery.send import has_reached_all
from exporter.domain.exit_codes import ExitCode
from exporter.history.published import Expectations
from tests.integration.receiving import Hook, http_server, write_report
from tests.programs import Call
from tests.s3 import SECRET, S3Server, s3_for_all


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """One server for all tests of this file, and an environment that names it."""
    with s3_for_all(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def hook() -> Hook:
    """What the HTTP server got."""
    return Hook()


@pytest.fixture
def config(hook: Hook, tmp_path: Path) -> Iterator[Path]:
    """A configuration that delivers reports of s3://history/sent to the hook."""
    with http_server(hook) as address:
        (tmp_path / "url").write_text(address.replace("http", "json"))
        path = tmp_path / "prod.yaml"
        delivery = {"recipients": [{"url": {"file": str(tmp_path / "url")}}]}
        path.write_text(json.dumps({"delivery": delivery, "history": {"folder": "s3://history/sent"}}))
        yield path


def test_the_last_report_is_sent_once_and_its_record_lies_beside_it(
    server: S3Server, config: Path, hook: Hook, tmp_path: Path, call: Call
) -> None:
    """What was taken is not sent again, with the page; the exporter reads who got it."""
    reports = server.folder_of("sent") / "published" / "reports"
    write_report(reports / "2026-02-24")
    write_report(reports / "2026-03-03")
    hook.answers = [(503, {}, "restarting")]
    refused = call("deliver", "--config", str(config))
    assert refused.returncode == ExitCode.FOUND and "503" in refused.stderr
    sent = call("deliver", "--config", str(config))
    assert (sent.returncode, sent.stdout) == (0, f"delivered to {tmp_path / 'url'}\n"), sent.stderr
    assert SECRET not in refused.stderr + sent.stdout + sent.stderr
    again = call("deliver", "--config", str(config))
    assert (again.returncode, again.stdout) == (0, "1 delivered before, not sent again\n"), again.stderr
    assert len(hook.bodies) == 2
    assert [one["filename"] for one in hook.bodies[-1]["attachments"]] == ["liveness.html"]
    folder = server.location("sent") / "published" / "reports" / "2026-03-03"
    assert has_reached_all(folder)
    assert Expectations(server.location("sent")).find_report_time(has_reached_all) is not None
    named = call("deliver", "--config", str(config), "--report", "s3://history/sent/published/reports/2026-02-24")
    assert named.returncode == 0 and len(hook.bodies) == 3, named.stderr
