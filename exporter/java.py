"""The Java of this machine, which Spark needs."""

import os
import re
import shutil
import subprocess
from pathlib import Path

JAVA_NEEDED = 17


class JavaError(Exception):
    """There is no Java that can be used. The text says why, and the next step."""


def java() -> str:
    """Return the path of Java 17 or newer: ``JAVA_HOME/bin/java``, else ``java`` on the PATH. Raises JavaError."""
    home = os.environ.get("JAVA_HOME")
    path = shutil.which(str(Path(home) / "bin" / "java")) if home else shutil.which("java")
    install = (
        f"install a Java {JAVA_NEEDED} runtime (Debian: apt install openjdk-17-jre-headless) or point JAVA_HOME at one"
    )
    if path is None:
        where = f"in JAVA_HOME={home}" if home else "on the PATH"
        raise JavaError(f"no java {where}; next step: {install}")
    try:
        version = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=60, check=False)
        match = re.search(r'version "(?:1\.)?(\d+)', version.stderr + version.stdout)
    except (OSError, subprocess.TimeoutExpired):
        match = None
    if match is None:
        raise JavaError(f"`{path} -version` prints no version; next step: {install}")
    if int(match[1]) < JAVA_NEEDED:
        raise JavaError(f"{path} is Java {match[1]}, needed is {JAVA_NEEDED} or newer; next step: {install}")
    return path
