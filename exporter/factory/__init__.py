"""Builds the parts of the exporter from its settings."""

from typing import TYPE_CHECKING

from exporter.domain.lazy_names import lazy_names

if TYPE_CHECKING:
    from exporter.factory.clusters import (
        ClusterCollectors,
        build_cluster,
        make_group_watch,
        make_inspector,
        make_naming,
        make_replica_watches,
    )
    from exporter.factory.monitor import last_states, make_monitor
    from exporter.factory.sources import (
        connect,
        connectivity,
        iam,
        make_backfill_source,
        make_poll_source,
        make_source,
        make_tier_client,
        owners_of,
    )

__all__ = [
    "ClusterCollectors",
    "build_cluster",
    "connect",
    "connectivity",
    "iam",
    "last_states",
    "make_backfill_source",
    "make_group_watch",
    "make_inspector",
    "make_monitor",
    "make_naming",
    "make_poll_source",
    "make_replica_watches",
    "make_source",
    "make_tier_client",
    "owners_of",
]

if not TYPE_CHECKING:
    __getattr__ = lazy_names(
        __name__,
        {
            "clusters": [
                "ClusterCollectors",
                "build_cluster",
                "make_group_watch",
                "make_inspector",
                "make_naming",
                "make_replica_watches",
            ],
            "monitor": ["last_states", "make_monitor"],
            "sources": [
                "connect",
                "connectivity",
                "iam",
                "make_backfill_source",
                "make_poll_source",
                "make_source",
                "make_tier_client",
                "owners_of",
            ],
        },
    )
