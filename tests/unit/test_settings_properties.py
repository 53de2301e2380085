"""Settings of every shape: they round-trip, and no text about them holds a secret."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from exporter.domain.formatting import spell_duration, spell_size
from exporter.settings.errors import SettingsError
from exporter.settings.load import dump_yaml, load_settings
from exporter.settings.quantities import parse_duration, parse_size
from exporter.settings.schema import Settings

SMALLEST = "clusters: [{name: prod, kafka: {bootstrap.servers: host:9092}}]\n"


@given(st.floats(min_value=0, max_value=1e9) | st.integers(0, 10**9).map(float), st.integers(0, 2**60))
def test_durations_and_sizes_round_trip(seconds: float, size: int) -> None:
    assert parse_duration(spell_duration(seconds)) == seconds
    assert parse_size(spell_size(size)) == size


def reload(text: str) -> Settings:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "settings.yaml")
        path.write_text(text, encoding="utf-8")
        return load_settings(path, environ={})


TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=20)


@given(st.sampled_from(["no", "0123", "12:30", "${X}", "$${", "~", "a: b", "# c"]) | TEXT)
@settings(deadline=None, max_examples=50)
def test_any_text_round_trips(text: str) -> None:
    kafka = {"bootstrap.servers": "host:9092", "client.id": text}
    made = Settings.model_validate({"clusters": [{"name": "prod", "kafka": kafka}]})
    assert reload(dump_yaml(made)) == made


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
    text = f"clusters: [{{name: prod, kafka: {{bootstrap.servers: host:9092, {name}: {SECRET}}}}}]"
    loaded = reload(text)
    assert loaded.clusters[0].kafka[name] == SECRET
    for shown in (repr(loaded), str(loaded), dump_yaml(loaded), repr(loaded.clusters[0].kafka)):
        assert SECRET not in shown
        assert "***" in shown


@given(
    name=st.sampled_from(SECRET_PROPERTIES),
    separator=st.sampled_from([": ", ":", "=", " = ", " "]),
    lead=st.sampled_from(
        ["", "*", "&", "!", "!!", "%", "@", "`", "|", ">", "'", '"', "{", "[", "- ", "? ", "${", "#", "\t"]
    ),
    tail=st.sampled_from(["", "'", '"', ": x", "}", "]", " *a", "\n- x", "\n  : x", "${", "\\", "\x07"]),
    indent=st.sampled_from([0, 2, 4]),
    style=st.sampled_from(["block", "flow"]),
)
@settings(deadline=None, max_examples=300)
def test_no_error_shows_a_secret(name: str, separator: str, lead: str, tail: str, indent: int, style: str) -> None:
    assume((lead, tail) != ("${", "}"))  # the name of a variable is no secret
    line = f"{name}{separator}{lead}{SECRET}{tail}"
    if style == "flow":
        text = f"clusters: [{{name: prod, kafka: {{bootstrap.servers: host:9092, {line}}}}}]\n"
    else:
        text = f"clusters:\n  - name: prod\n    kafka:\n      client.id: x\n{' ' * indent}  {line}\n"
    text += "poll: {interval: 1s}\n"
    with pytest.raises(SettingsError) as caught:
        reload(text)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


def test_no_error_shows_what_a_variable_holds(tmp_path: Path) -> None:
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
