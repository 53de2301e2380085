"""Kafka's own command line tools, with which tests compare what the exporter finds."""

import subprocess
from pathlib import Path

from exporter.java import java
from tests.demo.broker import resolve_kafka


def small_java(heap: str, *jars: Path) -> list[str]:
    """Return the beginning of a command line of Java with these folders of jars, of which the broker's is the first.

    The broker's archive of classes fits a class path that begins so, and saves half the CPU of a start.
    """
    archive = (f"-XX:SharedArchiveFile={jars[0] / 'kafka.Kafka.jsa'}", "-Xlog:cds=off,cds+dynamic=off")
    little = (f"-Xmx{heap}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    return [java(), *little, *archive, "-cp", ":".join(f"{each}/*" for each in jars)]


def kafka_tool(cache: Path, main: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run one of the tools, by the whole name of its class. Raises CalledProcessError."""
    jars = resolve_kafka(cache=cache, progress=print)
    tools = resolve_kafka(cache=cache, progress=print, artifact="kafka-tools")
    command = [*small_java("128m", jars, tools), main, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
