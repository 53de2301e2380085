"""Which folder a path or URI names."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest
import yaml

from exporter.settings import SettingsError, load_settings
from exporter.settings.dump import to_yaml
from exporter.storage import ObjectPath, located


@pytest.mark.parametrize(
    ("text", "root", "path"),
    [
        ("s3://bucket/a/b/", "s3://bucket", "a/b"),
        ("s3a://bucket/a", "s3://bucket", "a"),
        ("gs://bucket", "gs://bucket", "."),
        ("abfss://box@account.dfs.core.windows.net/a", "abfss://box@account.dfs.core.windows.net", "a"),
        ("hdfs://name-node:8020/a/b", "hdfs://name-node:8020", "a/b"),
    ],
)
def test_a_uri_names_a_folder_in_object_storage(text: str, root: str, path: str) -> None:
    """What Hadoop calls s3a is S3, a slash at the end is none, and what it is spelled back to names the same."""
    assert located(text) == ObjectPath(root, PurePosixPath(path))
    assert located(str(located(text))) == located(text)


def test_a_path_and_a_uri_of_this_host_name_a_folder_of_this_host() -> None:
    """Only what has :// is a URI."""
    assert located("file:///var/lib/history") == Path("/var/lib/history")
    assert located("s3/history") == Path("s3/history")
    assert located("~/history") == Path.home() / "history"


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("s4://bucket/a", "must be a path, or a URI that begins with s3://, gs://, abfs://, abfss://, hdfs://"),
        ("s3:///a", "must name a bucket: s3://BUCKET/FOLDER"),
        ("s3://bucket/a/../b", "must not hold .."),
        ("file://elsewhere/a", "must be file:///PATH: another host's files cannot be named so"),
        ("s3://key:hidden@bucket/a", "must hold no credentials, and nothing after ?"),
        ("s3://hidden@bucket/a", "must hold no credentials, and nothing after ?"),
        ("abfss://box:hidden@account.dfs.core.windows.net/a", "must hold no credentials, and nothing after ?"),
        ("abfss://box@account.dfs.core.windows.net/a?sig=hidden", "must hold no credentials, and nothing after ?"),
    ],
)
def test_a_uri_that_names_none_is_refused_without_its_secrets(text: str, rule: str) -> None:
    """One line with the rule; credentials in it are not repeated."""
    with pytest.raises(SettingsError) as refused:
        load_settings(None, None, {"TOPIC_LIVENESS_HISTORY__FOLDER": text}, with_clusters=False)
    assert rule in str(refused.value)
    assert "hidden" not in str(refused.value)


def test_settings_with_a_uri_load_back_to_the_same(tmp_path: Path) -> None:
    """As `check-config` prints them."""
    settings = load_settings(None, None, {"TOPIC_LIVENESS_HISTORY__FOLDER": "s3a://bucket/a"}, with_clusters=False)
    printed = yaml.safe_load(to_yaml(settings))
    assert printed["history"]["folder"] == "s3://bucket/a"
    (tmp_path / "again.yaml").write_text(yaml.safe_dump({"history": printed["history"]}))
    assert load_settings(tmp_path / "again.yaml", None, {}, with_clusters=False).history == settings.history
