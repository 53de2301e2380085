"""What a real Alertmanager, and servers that are none, answer about acknowledged alerts."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
import yaml

from exporter.commands import acknowledgements
from exporter.commands.acknowledgements import Acknowledged, AlertmanagerError, read_acknowledgements
from exporter.commands.options import job_settings
from exporter.commands.spark_job import acknowledged
from exporter.domain.verdicts import ALERT_OUTLASTS_SECONDS
from exporter.settings import Settings
from exporter.settings.quantities import parse_duration
from tests.answers import answering
from tests.plain_http import NO_TLS
from tests.programs import program, running
from tests.prometheus import free_port

ROOT = Path(__file__).parents[2]
NOW = datetime.now(UTC)


def settings(url: str, **more: object) -> Settings:
    """Two clusters, two owners, and an Alertmanager."""
    clusters = [{"name": name, "kafka": {"bootstrap.servers": "localhost:1"}} for name in ("prod", "prod-eu")]
    owners = [{"topics": "pay-.*", "owner": "payments"}, {"topics": ".*", "owner": "others"}]
    rollup = {"alertmanager": {"url": url, **more}}
    return Settings.model_validate({"clusters": clusters, "owners": owners, "rollup": rollup})


@pytest.fixture(scope="module")
def alertmanager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address."""
    folder = tmp_path_factory.mktemp("alertmanager")
    (folder / "a.yml").write_text("{route: {receiver: none}, receivers: [{name: none}]}", encoding="utf-8")
    url = f"http://127.0.0.1:{free_port()}"
    command = [
        program("prometheus-alertmanager"),
        f"--config.file={folder}/a.yml",
        f"--storage.path={folder}/data",
        f"--web.listen-address={url.removeprefix('http://')}",
        "--cluster.listen-address=",
    ]
    with running(command, f"{url}/-/ready", folder / "log"):
        yield url


def matched(by: str) -> list[dict[str, object]]:
    """Matchers as amtool takes them, such as ``topic=a owner=~"b|c"``."""
    matches = [re.fullmatch(r"(\w+)(=~|!=|!~|=)(.*)", one) for one in by.split(" ")]
    fields = [part.groups() for part in matches if part is not None]
    return [
        {"name": name, "value": value, "isRegex": "~" in how, "isEqual": how[0] == "="} for name, how, value in fields
    ]


def silence(url: str, comment: str, by: str, starts: datetime = NOW) -> str:
    """Make a silence of TopicLivenessTopicDead; return its id."""
    matchers = matched(by if "alertname" in by else f"alertname=TopicLivenessTopicDead {by}")
    times = {"startsAt": starts.isoformat(), "endsAt": (starts + timedelta(hours=4)).isoformat()}
    body = {"matchers": matchers, "createdBy": "on call", "comment": comment, **times}
    answer = httpx.post(f"{url}/api/v2/silences", json=body, timeout=10, verify=NO_TLS).raise_for_status()
    return str(answer.json()["silenceID"])


def expire(url: str, silence_id: str) -> None:
    """End a silence, as amtool does."""
    httpx.delete(f"{url}/api/v2/silence/{silence_id}", timeout=10).raise_for_status()


def read(url: str) -> Acknowledged:
    """What a rollup reads some seconds later."""
    return read_acknowledgements(settings(url), datetime.now(UTC) + timedelta(seconds=5))


def test_silences_that_are_acknowledgements_are_read(alertmanager: str) -> None:
    """By comment, alert and topic; also those that are over; for each cluster that a pattern matches."""
    one = silence(alertmanager, "ACK! known", "kafka_cluster=prod topic=a.b")
    many = silence(alertmanager, "ACK! known", "topic=x kafka_cluster=~prod.*")
    every = silence(alertmanager, "ACK!", "topic=~(c|d)")
    expire(alertmanager, every)
    planned = silence(alertmanager, "ACK! planned", "topic=later", NOW + timedelta(days=1))
    called_off = silence(alertmanager, "ACK! called off", "topic=never", NOW + timedelta(days=1))
    expire(alertmanager, called_off)
    others = [
        planned,
        called_off,
        silence(alertmanager, "a false alarm", "topic=noisy"),
        silence(alertmanager, "ACK! lag", "alertname=TopicLivenessGroupStalled topic=read"),
        silence(alertmanager, "ACK! far", "topic=far kafka_cluster=elsewhere"),
    ]
    found = read(f"{alertmanager}/")
    rows = {(row.silence_id, row.topics, row.cluster) for row in found.found}
    assert rows == {
        (one, r"a\.b", "prod"),
        (many, "x", "prod"),
        (many, "x", "prod-eu"),
        (every, "(c|d)", None),
    }
    assert all(0 <= row.at - NOW.timestamp() <= time.time() - NOW.timestamp() for row in found.found)
    assert (set(found.withdrawn), found.warning()) == (set(others), None)
    assert read_acknowledgements(Settings()) == Acknowledged()


def test_a_rollup_knows_the_clusters_by_name_and_needs_no_password(alertmanager: str, tmp_path: Path) -> None:
    """As the command loads its settings: what matchers say of clusters counts, be it a name or a pattern."""
    config, bare = tmp_path / "config.yaml", tmp_path / "bare.yaml"
    rollup = {"alertmanager": {"url": alertmanager}}
    servers = {"bootstrap.servers": "localhost:1", "sasl.password": "${NOT_SET}"}
    clusters = [{"name": name, "kafka": servers} for name in ("blue", "blue-eu")]
    config.write_text(yaml.safe_dump({"clusters": clusters, "rollup": rollup}), encoding="utf-8")
    bare.write_text(yaml.safe_dump({"rollup": rollup}), encoding="utf-8")
    named = silence(alertmanager, "ACK! known", "kafka_cluster=blue topic=by-name")
    fitting = silence(alertmanager, "ACK! known", "kafka_cluster=~blue.* topic=by-pattern")
    by_name, by_pattern = (named, "by\\-name", "blue"), (fitting, "by\\-pattern", "blue")

    def read_by(path: Path) -> tuple[set[tuple[str, str, str | None]], str | None]:
        found = read_acknowledgements(job_settings(path, None, None), datetime.now(UTC) + timedelta(seconds=5))
        rows = {(row.silence_id, row.topics, row.cluster) for row in found.found}
        return {row for row in rows if row[0] in (named, fitting)}, found.warning()

    assert read_by(config)[0] == {by_name, by_pattern, (*by_pattern[:2], "blue-eu")}
    without_names, warning = read_by(bare)
    assert without_names == {by_name}
    assert warning is not None
    assert "name clusters by a pattern or a negation, and the configuration names no clusters" in warning


def test_who_changes_the_comment_takes_an_acknowledgement_back(alertmanager: str) -> None:
    """Alertmanager keeps the id where the comment alone changes."""
    wrong = silence(alertmanager, "ACK! orders are out", "topic=wrong")
    assert wrong in {row.silence_id for row in read(alertmanager).found}
    update = [
        program("amtool"),
        f"--alertmanager.url={alertmanager}",
        "silence",
        "update",
        wrong,
        "-c",
        "it was a pause",
    ]
    subprocess.run(update, check=True, timeout=60, capture_output=True)
    answer = read(alertmanager)
    assert wrong in answer.withdrawn and wrong not in {row.silence_id for row in answer.found}


KARMA = "cluster=k8s namespace=monitoring job=topic-liveness severity=critical"
"""What karma adds of the labels of an alert, beside its name, topic, cluster and owner."""

LABELLED: Mapping[str, set[tuple[str, str | None]]] = {
    f"kafka_cluster=prod topic=orders owner=others {KARMA}": {("orders", "prod")},
    f"kafka_cluster=prod topic=~(pay-in|orders) owner=~(payments|others) {KARMA}": {("(pay-in|orders)", "prod")},
    "kafka_cluster=prod topic=~pay-in|orders owner=payments": {(r"pay\-in", "prod")},
    "kafka_cluster=~(prod|prod-eu) topic=orders severity=~(critical|warning)": {
        ("orders", "prod"),
        ("orders", "prod-eu"),
    },
    "alertname=~TopicLiveness.* kafka_cluster=prod topic=~orders.*": {("orders.*", "prod")},
}


@pytest.mark.parametrize("by", LABELLED)
def test_other_labels_of_an_alert_take_nothing_from_topics_that_are_written_out(by: str) -> None:
    """Karma writes them all. The owner is that of the configuration."""
    answer = read_one(by)
    assert {(row.topics, row.cluster) for row in answer.found} == LABELLED[by]
    assert (answer.withdrawn, answer.warning()) == ([], None)


def read_one(by: str, alert: str = "alertname=TopicLivenessTopicDead ") -> Acknowledged:
    """What is read of one acknowledgement with these matchers."""
    times = {"startsAt": NOW.isoformat(), "endsAt": (NOW + timedelta(hours=1)).isoformat()}
    matchers = matched(by if "alertname" in by else f"{alert}{by}")
    body = json.dumps([{"id": "1", "comment": "ACK!", "matchers": matchers, **times}]).encode()
    with answering(200, body) as (url, _):
        return read_acknowledgements(settings(url))


TOO_WIDE = "1 may mean only some of their topics, by "
NOT_USED = "1 have a pattern that is not used"
LEFT_OUT = {
    "topic=orders namespace=stage": TOO_WIDE + "namespace",
    "kafka_cluster=~.+ topic=orders namespace=stage": TOO_WIDE + "namespace",
    "kafka_cluster=prod topic=~.+ owner=payments": TOO_WIDE + "owner",
    "kafka_cluster=prod topic=~orders.* severity=critical job=a": TOO_WIDE + "job, severity",
    "kafka_cluster=prod topic=orders namespace!=stage": TOO_WIDE + "namespace",
    "kafka_cluster=prod topic=orders owner=payments": "1 name an owner that none of their topics has",
    "kafka_cluster=prod": "1 name topics by no matcher",
    "topic!=orders": "1 name topics by no matcher",
    "topic=~(a+)+b": NOT_USED,
    "topic=~(a|aa){9}b": NOT_USED,
    "topic=~.*.*.*.*.*b": NOT_USED,
    f"topic=~{'a' * 1000}.*": NOT_USED,
    r"topic=~\pL": NOT_USED,
    "topic=a kafka_cluster=~(a+)+b": NOT_USED,
}


@pytest.mark.parametrize("by", LEFT_OUT)
def test_what_may_mean_less_than_it_names_labels_nothing(by: str) -> None:
    """One line says how many were left out and why; what was kept of them goes."""
    answer = read_one(by)
    assert (answer.found, answer.withdrawn) == ([], ["1"])
    assert LEFT_OUT[by] in str(answer.warning())


@pytest.mark.parametrize(
    ("by", "said"),
    [
        ("topic=orders", "1 name topics and no alert (alertname), so that they may mean another one"),
        ("topic=~orders.* kafka_cluster=prod", "1 name topics and no alert (alertname)"),
        ("topic!=orders", "None"),
        ("kafka_cluster=prod", "None"),
        ("alertname=TopicLivenessGroupStalled topic=orders", "None"),
    ],
)
def test_an_acknowledgement_of_topics_without_an_alert_does_not_count(by: str, said: str) -> None:
    """It is counted as such. One that names neither, or another alert, means something else."""
    answer = read_one(by, alert="")
    assert (answer.found, answer.withdrawn) == ([], ["1"])
    assert said in str(answer.warning())


def test_the_rollup_says_once_what_does_not_count(capsys: pytest.CaptureFixture[str]) -> None:
    """And hands over the ids of silences that are something else."""
    times = {"startsAt": NOW.isoformat(), "endsAt": (NOW + timedelta(hours=1)).isoformat()}
    wide = {
        "comment": "ACK!",
        "matchers": matched("alertname=TopicLivenessTopicDead topic=~.+ owner=payments"),
        **times,
    }
    body = json.dumps([{"id": str(number), **wide} for number in range(2)]).encode()
    with answering(200, body) as (url, _):
        option, file = acknowledged(settings(url))
    assert option == "--withdrawn" and json.loads(Path(file.removeprefix("@")).read_text()) == ["0", "1"]
    assert capsys.readouterr().err == (
        "acknowledged alerts that do not count (docs/configuration.md#acknowledged-alerts): "
        "2 may mean only some of their topics, by owner\n"
    )


def test_a_long_list_of_topics_is_used() -> None:
    """Karma names each topic of a group of alerts; names are tried one after the other."""
    names = [f"orders-{number}" for number in range(500)]
    answer = read_one(f"topic=~({'|'.join(names)})")
    assert [re.fullmatch(row.topics, names[-1]) is not None for row in answer.found] == [True]


def test_an_answer_that_trickles_in_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes in time, and all of them do not."""
    monkeypatch.setattr(acknowledgements, "_LONGEST_SECONDS", 1.0)
    late = pytest.raises(AlertmanagerError, match=r"did not answer with its silences within 1 s")
    with answering(200, b"[" * 15, pause=0.2) as (url, _), late:
        read_acknowledgements(settings(url))


def test_an_alert_that_keeps_firing_belongs_to_the_silence_before() -> None:
    """It is looked for as long back as the alerts fire on, and some minutes more."""
    groups = yaml.safe_load((ROOT / "dashboards" / "alerts.yaml").read_text(encoding="utf-8"))["groups"]
    rules = {rule.get("alert"): rule for group in groups for rule in group["rules"]}
    longest = max(parse_duration(rules[alert]["keep_firing_for"]) for alert in acknowledgements.ALERTS)
    assert longest + 300.0 <= ALERT_OUTLASTS_SECONDS <= 2 * longest


ANSWERS = {
    "not JSON": (200, b"<html>", "does not answer as Alertmanager does"),
    "another API": (200, b'[{"id": 1}]', "does not answer as Alertmanager does"),
    "refused": (401, b"", "answered 401 Unauthorized for its silences; next step: check rollup.alertmanager.url"),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_a_server_that_gives_no_silences_costs_one_line(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rollup goes on without the option; the header, which arrives, is not in the line."""
    code, body, expected = ANSWERS[case]
    secret = tmp_path / "authorization"
    secret.write_text("Bearer sesame\n", encoding="utf-8")
    with answering(code, body) as (place, seen):
        url = f"{place}/prefix"
        assert acknowledged(settings(url, authorization={"file": str(secret)})) == []
    assert seen == [("/prefix/api/v2/silences", "Bearer sesame")]
    line = capsys.readouterr().err
    assert line.startswith(f"acknowledged alerts are left for the next rollup: {url}") and expected in line
    assert line.count("\n") == 1 and "sesame" not in line


@pytest.mark.parametrize("value", ["Bearer ses\name", "Bearer sesame ", "Bearer s\u00e9same"])
def test_a_header_that_http_does_not_allow_is_named_by_its_file(value: str, tmp_path: Path) -> None:
    """Not by what it holds."""
    secret = tmp_path / "authorization"
    secret.write_text(value, encoding="utf-8")
    configured = settings("http://127.0.0.1:1", authorization={"file": str(secret)})
    with pytest.raises(AlertmanagerError) as refused:
        read_acknowledgements(configured)
    assert str(refused.value).startswith(f"rollup.alertmanager: the file {secret} must hold one line")
    assert "same" not in str(refused.value).replace(str(secret), "")


def test_a_file_of_cas_that_is_none_is_named(tmp_path: Path) -> None:
    """With what is wrong with it."""
    (tmp_path / "ca.pem").write_text("nothing\n", encoding="utf-8")
    with pytest.raises(AlertmanagerError, match=r"rollup\.alertmanager: .*ca\.pem cannot be used"):
        read_acknowledgements(settings("https://127.0.0.1:1", ca_file=str(tmp_path / "ca.pem")))


def test_an_alertmanager_that_is_gone_is_named() -> None:
    """With the setting to check."""
    with pytest.raises(AlertmanagerError, match=r"cannot be asked: .*next step: check rollup\.alertmanager\.url"):
        read_acknowledgements(settings(f"http://127.0.0.1:{free_port()}"))


@pytest.mark.parametrize("proxy", ["socks5://proxy:1080", "socks4://proxy:1080"])
def test_a_proxy_that_cannot_be_used_costs_one_line(
    proxy: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rollup goes on: httpx takes the proxy from the environment, and SOCKS needs another package."""
    monkeypatch.setenv("ALL_PROXY", proxy)
    monkeypatch.setenv("NO_PROXY", "")
    assert acknowledged(settings("http://alertmanager.example:9093")) == []
    line = capsys.readouterr().err
    assert line.startswith("acknowledged alerts are left for the next rollup: ") and "proxy" in line
    assert line.count("\n") == 1
