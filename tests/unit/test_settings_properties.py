"""Settings of every shape: they round-trip, and no text about them holds a secret."""

from __future__ import annotations

import tempfile
from datetime import UTC
from pathlib import Path
from typing import cast, get_args

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from exporter.domain.formatting import setting_duration, setting_size
from exporter.settings.dump import to_yaml
from exporter.settings.errors import SettingsError
from exporter.settings.load import load_settings
from exporter.settings.quantities import parse_duration, parse_size
from exporter.settings.schema import PartitionMetric, Settings

SMALLEST = "clusters: [{name: prod, kafka: {bootstrap.servers: host:9092}}]\n"


@given(st.floats(min_value=0, max_value=1e9) | st.integers(0, 10**9).map(float))
def test_durations_round_trip(seconds: float) -> None:
    """Every duration is spelled so that it reads back exactly."""
    assert parse_duration(setting_duration(seconds)) == seconds


@given(st.integers(0, 2**60))
def test_sizes_round_trip(size: int) -> None:
    """Every size is spelled so that it reads back exactly."""
    assert parse_size(setting_size(size)) == size


NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=20)
PROPERTIES = st.dictionaries(
    st.sampled_from(
        ["client.id", "sasl.password", "sasl.username", "ssl.ca.location", "debug", "statistics.interval.ms"]
    ),
    TEXT,
).map(lambda chosen: {"bootstrap.servers": "host:9092", **chosen})
PATTERNS = st.lists(st.sampled_from([".*", r"orders\..*", "no", "0123", "[a-c]+", "$${"]), max_size=3)
WINDOWS = st.sampled_from([60, 90, 300, 900, 3600])


def at_least(minimum: float) -> st.SearchStrategy[float]:
    """Durations in seconds from ``minimum`` to about three years."""
    return st.floats(min_value=minimum, max_value=1e8) | st.integers(int(minimum) + 1, 10**8).map(float)


SETTINGS = st.fixed_dictionaries(
    {
        "clusters": st.lists(
            st.fixed_dictionaries(
                {
                    "name": NAMES,
                    "kafka": PROPERTIES,
                    "topics": st.fixed_dictionaries(
                        {"include": PATTERNS, "exclude": PATTERNS, "internal": st.booleans()}
                    ),
                }
            ),
            min_size=1,
            max_size=3,
            unique_by=lambda cluster: cast("dict[str, str]", cluster)["name"],
        ),
        "exporter": NAMES,
        "lookups_per_second": st.integers(1, 1_000_000),
        "poll": st.fixed_dictionaries(
            {
                "interval": st.floats(min_value=5, max_value=60),
                "request_timeout": st.floats(min_value=1, max_value=3600),
                "missed_polls": st.integers(1, 1000),
                "config_refresh": at_least(1),
            }
        ),
        "history": st.fixed_dictionaries(
            {
                "enabled": st.booleans(),
                "folder": st.text("abc/ é.-", min_size=1).map(Path).filter(lambda folder: str(folder).strip()),
                "window": WINDOWS,
                "max_bytes": st.integers(2**20, 2**50),
            }
        ),
        "expectations": st.fixed_dictionaries({"max_age": at_least(60)}),
        "backfill": st.fixed_dictionaries(
            {
                "horizon": at_least(3600),
                "slot": st.sampled_from([60, 300, 900.0, 3600]),
            }
        ),
        "rollup": st.fixed_dictionaries(
            {
                "master": TEXT.filter(str.strip),
                "retention": at_least(364 * 86_400),
            }
        ).flatmap(
            lambda rest: st.one_of(
                st.floats(0.01, 1000.0).map(lambda rate: {**rest, "false_alarms_per_1000_topic_weeks": rate}),
                st.floats(0.01, 1000.0).map(lambda count: {**rest, "false_alarms_a_week": count}),
            )
        ),
        "metrics": st.fixed_dictionaries(
            {
                "granularity": st.sampled_from(["partition", "topic"]),
                "partition": st.lists(st.sampled_from(get_args(PartitionMetric)), unique=True),
            }
        ),
        "overrides": st.lists(
            st.fixed_dictionaries({"topics": st.sampled_from([".*", r"orders\..*", "no", "0123"])}).flatmap(
                lambda named: st.one_of(
                    st.just({**named, "retired": True}),
                    at_least(60).map(lambda seconds: {**named, "max_silence": seconds}),
                    st.datetimes(timezones=st.just(UTC)).map(lambda until: {**named, "muted_until": until}),
                )
            ),
            max_size=3,
        ),
        "web": st.fixed_dictionaries({"listen": st.sampled_from(["0.0.0.0:9797", "[::]:0", ":80", "host-1.x:65535"])}),
        "log": st.fixed_dictionaries(
            {
                "level": st.sampled_from(["debug", "info", "warning", "error"]),
                "format": st.sampled_from(["text", "json"]),
            }
        ),
    }
)


def reload(text: str) -> Settings:
    """Write ``text`` to a file and load that."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "settings.yaml")
        path.write_text(text, encoding="utf-8")
        return load_settings(path, environ={})


@given(SETTINGS)
@settings(deadline=None, max_examples=50)
def test_settings_round_trip(values: dict[str, object]) -> None:
    """Any valid settings, printed as YAML and loaded again, are the same settings."""
    made = Settings.model_validate(values)
    assert reload(to_yaml(made, show_secrets=True)) == made


SECRET = "Zq7hunter2Xw"  # noqa: S105
SECRET_PROPERTIES = [
    "sasl.password",
    "ssl.key.password",
    "ssl.key.pem",
    "ssl.keystore.password",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.config",
    "sasl.jaas.config",
    "sasl.oauthbearer.assertion.private.key.passphrase",
]


@pytest.mark.parametrize("name", SECRET_PROPERTIES)
def test_secrets_are_masked_wherever_settings_are_shown(name: str) -> None:
    """repr, str and the printed configuration show *** for every property that may be secret."""
    text = f"clusters: [{{name: prod, kafka: {{bootstrap.servers: host:9092, {name}: {SECRET}}}}}]"
    loaded = reload(text)
    assert loaded.clusters[0].kafka[name] == SECRET
    for shown in (repr(loaded), str(loaded), to_yaml(loaded), repr(loaded.clusters[0].kafka)):
        assert SECRET not in shown
        assert "***" in shown


@given(
    name=st.sampled_from(SECRET_PROPERTIES),
    lead=st.sampled_from(
        ["", "*", "&", "!", "!!", "%", "@", "`", "|", ">", "'", '"', "{", "[", "- ", "? ", "${", "#", "\t"]
    ),
    tail=st.sampled_from(["", "'", '"', ": x", "}", "]", " *a", "\n- x", "\n  : x", "${", "\\", "\x07"]),
    indent=st.sampled_from([0, 2, 4]),
    style=st.sampled_from(["block", "flow"]),
)
@settings(deadline=None, max_examples=300)
def test_no_error_shows_a_secret(name: str, lead: str, tail: str, indent: int, style: str) -> None:
    """However a secret is mistyped into the file, the message that refuses it does not hold it."""
    assume((lead, tail) != ("${", "}"))  # the name of a variable is no secret
    value = f"{lead}{SECRET}{tail}"
    if style == "flow":
        text = f"clusters: [{{name: prod, kafka: {{bootstrap.servers: host:9092, {name}: {value}}}}}]\n"
    else:
        text = f"clusters:\n  - name: prod\n    kafka:\n      client.id: x\n{' ' * indent}  {name}: {value}\n"
    text += "poll: {interval: 1s}\n"
    with pytest.raises(SettingsError) as caught:
        reload(text)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


def test_no_error_shows_what_a_variable_holds(tmp_path: Path) -> None:
    """The value of a variable is not shown: what was written is, as it was written."""
    path = tmp_path / "prod.yaml"
    path.write_text(SMALLEST + "poll: {interval: '${SECRET}s'}\nweb: {listen: '${SECRET}'}\n")
    with pytest.raises(SettingsError) as caught:
        load_settings(path, environ={"SECRET": SECRET})
    assert SECRET not in str(caught.value)
    assert "got '${SECRET}s'" in str(caught.value)


def test_settings_made_by_hand_show_no_secret_either() -> None:
    """Pydantic's own error of a model that was not loaded hides its input."""
    with pytest.raises(ValueError, match="validation error") as caught:
        Settings.model_validate({"clusters": [{"name": "a b", "kafka": {"sasl.password": SECRET}}]})
    assert SECRET not in str(caught.value)
