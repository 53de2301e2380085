"""Settings: what is read, what is refused, and what is never shown."""

from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import TypeAdapter, ValidationError

from exporter.domain.verdicts import Outage, TopicOverride, TopicOwner
from exporter.metrics.catalogue import PARTITION_METRICS
from exporter.settings.calendars import days_of
from exporter.settings.delivery import Recipient
from exporter.settings.errors import SettingsError
from exporter.settings.load import load_settings
from exporter.settings.quantities import parse_duration
from exporter.settings.rules import Name, NotEmpty, Owner, default_exporter
from exporter.settings.schema import AwsMskIam, PartitionMetric, Settings

CONFIG = Path(__file__).parent / "config"
SMALLEST = "clusters: [{name: prod, kafka: {bootstrap.servers: host:9092}}]\n"


def head(path: Path, word: str) -> list[str]:
    """The ``# word: ...`` lines at the head of a file."""
    lead = f"# {word}: "
    return [line.removeprefix(lead) for line in path.read_text().splitlines() if line.startswith(lead)]


def load(tmp_path: Path, text: str, **environ: str) -> Settings:
    path = tmp_path / "prod.yaml"
    path.write_text(text)
    return load_settings(path, environ=environ)


@pytest.mark.parametrize("path", sorted((CONFIG / "bad").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_bad_file_gets_exactly_its_messages(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file of config/bad is refused with the problems that stand at its head, all at once, no secret shown."""
    monkeypatch.chdir(path.parent)
    environ = dict(line.split("=", 1) for line in head(path, "variable"))
    with pytest.raises(SettingsError) as caught:
        load_settings(Path(path.name), environ=environ)
    assert list(caught.value.problems) == head(path, "problem")
    assert "hunter2" not in str(caught.value)


def test_the_smallest_configuration_is_enough(tmp_path: Path) -> None:
    settings = load(tmp_path, SMALLEST)
    for name, given in (("prod", settings), ("default", load_settings(None, "host:9092"))):
        (cluster,) = given.clusters
        assert (cluster.name, dict(cluster.kafka)) == (name, {"bootstrap.servers": "host:9092"})
    assert (settings.poll.interval, settings.history.window) == (30.0, 300.0)
    assert settings.exporter == default_exporter()


def test_a_bootstrap_server_joins_a_file_without_clusters(tmp_path: Path) -> None:
    path = tmp_path / "prod.yaml"
    path.write_text("poll: {interval: 10s}\n")
    assert load_settings(path, "host:9092").poll.interval == 10.0
    path.write_text(SMALLEST)
    with pytest.raises(SettingsError, match=r"--bootstrap-server cannot be given beside clusters"):
        load_settings(path, "host:9092")
    with pytest.raises(SettingsError, match=r"got 'host:0' \(from --bootstrap-server\)"):
        load_settings(None, "host:0")


def test_every_setting_is_read() -> None:
    settings = load_settings(CONFIG / "good" / "everything.yaml", environ={"KAFKA_PASSWORD": "p${w} # 'x'"})
    prod, archive = settings.clusters
    assert (prod.kafka["sasl.password"], prod.kafka["socket.timeout.ms"]) == ("p${w} # 'x'", "012000")
    assert prod.kafka["socket.keepalive.enable"] == "yes"
    assert dict(archive.kafka) == {**prod.kafka, "bootstrap.servers": "[2001:db8::1]:9093"}
    poll, groups = settings.poll, settings.groups_of(prod)
    assert (poll.interval, poll.request_timeout, poll.missed_polls) == (60.0, 5.0, 5)
    assert settings.poll_of(prod) == poll
    assert settings.poll_of(archive) == poll.model_copy(update={"interval": 300.0, "missed_polls": 2})
    assert (groups.interval, groups.tolerance) == (120.0, 30.0)
    assert settings.groups_of(archive) == groups.model_copy(update={"enabled": False})
    assert (settings.history.folder, settings.history.max_bytes) == (Path("/var/lib/topic-liveness"), 500_000_000)
    assert settings.rollup.false_alarms_per_1000_topic_weeks == 2.5
    assert settings.rollup.retention == 3650 * 86_400
    assert [override.make_override() for override in settings.overrides] == [
        TopicOverride(r"billing\..*", max_silence_seconds=7200.0),
        TopicOverride(".*-test", "prod", muted_until=1_775_001_600.0),
        TopicOverride("old", retired=True),
    ]
    [outage] = settings.outages
    assert outage.make_outage() == Outage(r"orders\..*", 1_772_330_400.0, 1_772_353_800.0, "prod")
    bavaria, france = (calendar.make_calendar(2026) for calendar in settings.calendars)
    assert (bavaria.topics, bavaria.calendar, bavaria.cluster) == (r"orders\..*", "DE-BY", "prod")
    assert (1_798_153_200.0, 1_798_239_600.0, "Christmas Day") in bavaria.days, "25 December 2026 in Berlin"
    assert (france.topics, france.calendar, france.cluster) == (".*", "FR", None)
    assert [owner.make_owner() for owner in settings.owners] == [
        TopicOwner(r"billing\..*", "team-payments", "prod"),
        TopicOwner(r"(?P<team>\w+)\..*", r"team-\g<team>"),
    ]


def test_the_environment_overrides_the_file(tmp_path: Path) -> None:
    """A variable wins over the file; lists are written as YAML or JSON, and replace those of the file."""
    settings = load(
        tmp_path,
        SMALLEST + "poll: {interval: 60s, missed_polls: 5}\nmetrics: {partition: [staleness]}\n",
        TOPIC_LIVENESS_POLL__INTERVAL="15s",
        TOPIC_LIVENESS_METRICS__PARTITION="[expected_by, leader]",
        TOPIC_LIVENESS_EXPORTER="two",
        TOPIC_LIVENESS_CLUSTERS='[{"name": "a", "kafka": {"bootstrap.servers": "b:1", "client.id": "${ID}"}}]',
        ID="x",
    )
    assert (settings.poll.interval, settings.poll.missed_polls) == (15.0, 5)
    assert (settings.metrics.partition, settings.exporter) == (("expected_by", "leader"), "two")
    assert [(cluster.name, cluster.kafka["client.id"]) for cluster in settings.clusters] == [("a", "x")]


def test_options_override_the_environment(tmp_path: Path) -> None:
    path = tmp_path / "prod.yaml"
    path.write_text(SMALLEST)
    environ = {"TOPIC_LIVENESS_BACKFILL__HORIZON": "7d"}
    given = ("--horizon", "backfill.horizon", "14d")
    assert load_settings(path, environ=environ, overrides=[given]).backfill.horizon == 14 * 86400.0
    bad = ("--horizon", "backfill.horizon", "1s")
    with pytest.raises(SettingsError, match=r"backfill\.horizon must be at least 1h, got '1s' \(from --horizon\)"):
        load_settings(path, environ=environ, overrides=[bad])


@pytest.mark.parametrize(
    "name", ["CACHE", "SERVICE_PORT_HTTP", "PORT_9797_TCP", "EXPORTER_PORT_9797_TCP_ADDR", "PROD_EXPORTER_SERVICE_PORT"]
)
def test_variables_that_are_no_settings_are_left_alone(tmp_path: Path, name: str) -> None:
    """The cache folder, and what Kubernetes sets for a Service with our name, are not taken for settings."""
    settings = load(tmp_path, SMALLEST, **{f"TOPIC_LIVENESS_{name}": "tcp://10.0.0.1:9797"})
    assert settings.exporter == default_exporter()


def test_null_is_the_default(tmp_path: Path) -> None:
    assert load(tmp_path, SMALLEST + "poll: null\nhistory:\n  window: ~\n").poll.interval == 30.0
    with pytest.raises(SettingsError, match=r"overrides\[0\]\.clusters is not a known setting"):
        load(tmp_path, SMALLEST + "overrides: [{topics: a, max_silence: 1h, clusters: null}]\n")


def test_variables_are_replaced_inside_values(tmp_path: Path) -> None:
    text = "clusters: [{name: '${ENV}-eu', kafka: {bootstrap.servers: '${HOST}:9092', client.id: '$${x}$$'}}]"
    (cluster,) = load(tmp_path, text, ENV="prod", HOST="kafka").clusters
    assert cluster.name == "prod-eu"
    assert dict(cluster.kafka) == {"bootstrap.servers": "kafka:9092", "client.id": "${x}$$"}


def test_what_works_on_history_alone_does_not_look_at_clusters(tmp_path: Path) -> None:
    path = tmp_path / "prod.yaml"
    path.write_text("clusters: [{name: prod, kafka: {sasl.password: '${UNSET}'}}]\nhistory: {folder: here}\n")
    settings = load_settings(path, with_clusters=False)
    assert (settings.clusters, settings.history.folder) == ((), Path("here"))


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (None, "cannot be read: No such file or directory; name the configuration with --config FILE"),
        ("exporter: \xe9".encode("latin-1"), "is not UTF-8 text (byte 10)"),
        (b"exporter: a\x00b", "is not valid YAML; a value that starts with one of * & ! % @ ` needs quotes"),
        (b"a: " + b"[" * 100_000, "is nested too deeply"),
    ],
    ids=["missing", "latin", "control", "nested"],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None, rule: str) -> None:
    path = tmp_path / "prod.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SettingsError) as caught:
        load_settings(path)
    assert caught.value.problems == (f"{path} {rule}",)


def test_switchable_metrics_are_those_of_the_catalogue() -> None:
    switches = tuple(metric.switch for metric in PARTITION_METRICS if metric.switch is not None)
    assert get_args(PartitionMetric) == switches


@pytest.mark.parametrize("text", ["", "s", "5 minutes", "-5s", "1h30m", "5M", "٣s", "inf", "nan", "1e999x", "0x10"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be a duration such as 30s, 5m, 1h or 14d"):
        parse_duration(text)


@pytest.mark.parametrize("language", ["C", "de_DE.UTF-8", None])
def test_holidays_have_english_names_on_every_host(language: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    if language is not None:
        monkeypatch.setenv("LANG", language)
    days = days_of.__wrapped__("DE-BY", "Europe/Berlin", 2026)
    assert "Christmas Day" in {name for _, _, name in days}


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (NotEmpty, "\u00a0\u2003"),
        (Owner, " "),
        (Recipient, "team\u00a0@example.org"),
        (Name, "\ufb01rst"),
        (AwsMskIam, {"region": "eu-central-\u0661"}),
        (AwsMskIam, {"region": "eu-central-1", "role_arn": "arn:aws:iam::\u066123456789012:role/liveness"}),
    ],
)
def test_blanks_and_digits_of_other_scripts_are_no_way_around_a_rule(kind: Any, given: object) -> None:
    """Every blank of Unicode is one; letters and digits of names are those of ASCII."""
    with pytest.raises(ValidationError):
        TypeAdapter(kind).validate_python(given)
