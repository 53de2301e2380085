"""Which properties are secrets, and secrets from files, such as those that Kubernetes mounts."""

import os
import re
import stat
from pathlib import Path

MAX_BYTES = 1024 * 1024

_SECRET = re.compile(
    r"password|passwd|passphrase|secret|token|credential|assertion|kinit|jaas|oauthbearer\.config|(^|[._-])key([._-]|$)"
)
_NO_SECRET = re.compile(r".*\.(url|id|file|location|algorithm)|.*\.assertion\.claim\..*")


def may_be_secret(name: str) -> bool:
    """Return whether the value of a property of this name is never shown, perhaps as a precaution."""
    return _SECRET.search(name.lower()) is not None


def is_secret(name: str) -> bool:
    """Return whether the value of a property of this name is a secret."""
    return may_be_secret(name) and _NO_SECRET.fullmatch(name.lower()) is None


def unusable(path: Path, *, folder: bool = False) -> str | None:
    """Return the rule that a path breaks, None where a file can be read there."""
    try:
        kind = path.stat().st_mode
        if stat.S_ISDIR(kind) and folder:
            return None
        if not stat.S_ISREG(kind):
            return f"{path} must be a file; next step: check the path"
        with path.open("rb") as file:
            if not file.read(1):
                return f"the file {path} is empty; next step: check what wrote it, or the key of the mounted secret"
    except OSError as error:
        return (
            f"the file {path} cannot be read by user id {os.geteuid()}: {error.strerror}; next step: check the path, "
            "its owner, group and mode, and that the secret is mounted"
        )
    return None


def check_path(path: Path) -> Path:
    """Return a path. Raises ValueError where no file can have it, as the system's calls do without saying which."""
    try:
        impossible = b"\0" in os.fsencode(path)
    except UnicodeEncodeError:
        impossible = True
    if impossible:
        raise ValueError("must be a path that a file can have")
    return path


def text_in(path: Path) -> str:
    """Return the text in a file, without a byte order mark and the end of the line.

    Raises ValueError with the rule and the next step.
    """
    if rule := unusable(path):
        raise ValueError(rule)
    if path.stat().st_size > MAX_BYTES:
        raise ValueError(f"the file {path} is larger than {MAX_BYTES} bytes; next step: check the path")
    try:
        text = path.read_text(encoding="utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError:
        raise ValueError(f"the file {path} is not UTF-8 text; next step: check what wrote it") from None
    if not text:
        raise ValueError(f"the file {path} is empty; next step: check what wrote it, or the key of the mounted secret")
    return text


def refuse_password() -> str:
    """Keep OpenSSL from asking at the terminal for the password of a key."""
    raise ValueError("the key is encrypted; it must be in the clear")
