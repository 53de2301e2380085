"""Checksums (SHA-256) of what one program publishes and another decides by: a flipped bit must not be a value."""

import hashlib
import json
import re
from collections.abc import Mapping

from exporter.storage.files import Location, files_below, open_file

_PUBLISHED = re.compile(r"[^._].*")


def checksums_below(folder: Location) -> dict[str, str]:
    """Return the checksum of each file below a folder, by its name; hidden ones are left out. Raises OSError."""
    found = {}
    for stored in files_below(folder, _PUBLISHED):
        digest = hashlib.sha256()
        with open_file(stored.path) as file:
            while part := file.read(2**20):
                digest.update(part)
        found[stored.path.name] = digest.hexdigest()
    return found


def checksum_of(content: Mapping[str, object]) -> str:
    """Return the checksum of JSON values, whatever their order; that of the field ``checksum`` itself is left out."""
    rest = {name: value for name, value in content.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
