"""Kafka's own command line tools, with which tests compare what the exporter finds."""

from __future__ import annotations

import subprocess
from pathlib import Path

from exporter.java import java
from tests.demo.broker import resolve_kafka


def kafka_tool(cache: Path, main: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run one of the tools, whose class is named below ``org.apache.kafka.tools``. Raises CalledProcessError."""
    jars = resolve_kafka(cache=cache, progress=print)
    tools = resolve_kafka(cache=cache, progress=print, artifact="kafka-tools")
    command = [java(), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    # The broker's archive of classes fits a class path that begins with the broker's, and saves half the CPU.
    command += [f"-XX:SharedArchiveFile={jars / 'kafka.Kafka.jsa'}", "-Xlog:cds=off,cds+dynamic=off"]
    command += ["-cp", f"{jars}/*:{tools}/*", f"org.apache.kafka.tools.{main}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
