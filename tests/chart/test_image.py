"""The Dockerfile, as far as it can be checked in seconds: ``make image-check`` builds it and runs what it built."""

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from exporter.settings.schema import WebSettings
from tests.answers import answering

ROOT = Path(__file__).parents[2]
HASHES = re.compile(r"^([a-z0-9._-]+==[^ ]+) \\\n((?: +--hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE)


def instructions() -> list[tuple[str, str]]:
    """Every instruction of the Dockerfile with its arguments; lines that go on are joined."""
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    return [
        (name, rest.strip())
        for name, _, rest in (line.partition(" ") for line in lines if line.strip() and not line.startswith("#"))
    ]


def of(name: str) -> list[str]:
    return [arguments for instruction, arguments in instructions() if instruction == name]


def pins(lock: str) -> dict[str, set[str]]:
    text = (ROOT / lock).read_text(encoding="utf-8")
    found = {pin: set(re.findall("sha256:[0-9a-f]+", hashes)) for pin, hashes in HASHES.findall(text)}
    assert len(found) == len(re.findall(r"^[a-z][a-z0-9._-]*==", text, re.MULTILINE))
    return found


def test_the_linter_of_dockerfiles_finds_nothing() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    run = subprocess.run([hadolint, ROOT / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (0, ""), run.stdout + run.stderr


def test_the_image_holds_what_the_tests_have_tried() -> None:
    full, image, exporter = (pins(f"requirements{part}.lock") for part in ("", "-image", "-exporter"))
    assert exporter.items() < image.items() <= full.items()
    more = {pin.partition("==")[0] for pin in set(image) - set(exporter)}
    assert {"pyspark", "delta-spark"} <= more
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    assert {re.split("[><=~]", each)[0] for each in needed} <= {pin.partition("==")[0] for pin in exporter}


def test_the_image_runs_without_root() -> None:
    """The user of both images is a number that Kubernetes can check, in group 0, which OpenShift's users are in."""
    users: dict[str, str] = {}
    stage = ""
    for name, rest in instructions():
        if name == "FROM":
            stage = rest.split()[-1]
        elif name == "USER":
            users[stage] = rest
    assert users == {"exporter": "10001:0", "spark": "10001:0"}


def test_the_image_shows_the_port_that_is_served() -> None:
    port = WebSettings().listen.rpartition(":")[2]
    assert of("EXPOSE") == [port]
    [check] = of("HEALTHCHECK")
    assert '"-P"' in check, "without it a module in the volume would run"
    assert f"http://127.0.0.1:{port}/-/healthy" in check and "--start-period=5m" in check


def test_the_health_check_asks_through_no_proxy() -> None:
    """A container has the proxies of Docker's client in its environment, and none of them knows its 127.0.0.1."""
    [check] = of("HEALTHCHECK")
    _, *arguments = json.loads(check.partition("CMD ")[2])
    with answering(200, b"healthy\n") as (address, seen):
        asked = [argument.replace("http://127.0.0.1:9797", address) for argument in arguments]
        proxied = {**os.environ, "http_proxy": "http://127.0.0.1:1", "no_proxy": ""}
        subprocess.run([sys.executable, *asked], env=proxied, check=True, timeout=60)
    assert [path for path, _ in seen] == ["/-/healthy"]


def test_who_runs_the_image_cannot_change_what_runs() -> None:
    assert not [arguments for arguments in of("COPY") if "--chown" in arguments or "--chmod" in arguments]
    owned = re.findall(r"(?:chown|--owner=10001)\b.*?(/\S+)", " ".join(of("RUN")))
    assert owned == ["/var/lib/topic-liveness"]


def test_python_within_other_files_imports_what_there_is() -> None:
    """mypy does not read it: a name that the code no longer has would fail in the build of an image."""
    found = set()
    places = ("Dockerfile", "Makefile", ".ci/*", ".github/*/*", "docs/*.md")
    for path in (path for place in places for path in ROOT.glob(place) if path.is_file()):
        text = path.read_text(encoding="utf-8").replace("\\\n", "")
        for _, code in re.findall(r"""python3? -c (["'])(.*?)\1""", text, re.DOTALL):
            imports = [each for each in ast.parse(code).body if isinstance(each, ast.Import | ast.ImportFrom)]
            command = [sys.executable, "-c", "\n".join(map(ast.unparse, imports))]
            subprocess.run(command, cwd=ROOT, check=True)
            found.add(path.name)
    assert {"Dockerfile", "image"} <= found
