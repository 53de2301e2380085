"""What the configuration says of the monitor."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import KW_ONLY, dataclass, field

from exporter.domain.links import Links
from exporter.domain.overrides import Overrides
from exporter.domain.owners import Owners
from exporter.state.cluster import Rhythm


@dataclass(frozen=True, slots=True)
class MonitorSettings:
    """Which clusters the monitor shows and how, and what is configured of their topics."""

    clusters: Mapping[str, Rhythm]
    _: KW_ONLY
    partition_switches: Collection[str]
    """Metrics of partitions that are shown, by their switches."""
    expectations_max_age_seconds: float
    """Older expectations judge nothing."""
    partitions: bool = True
    """Whether there are series of partitions."""
    overrides: Overrides = field(default_factory=Overrides)
    owners: Owners = field(default_factory=Owners)
    links: Links = field(default_factory=Links)
