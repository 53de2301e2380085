"""What the exporter costs on a cluster of 100,000 partitions, a fake one: CPU a poll, memory, scrapes, start.

Run by ``make bench-scale``. The cluster's brokers are one Go program (``kfake``), whose CPU is not in the figures; it
takes from the two cores that the exporter runs on, so wall seconds are those of a busy machine. ``--polls 67`` shows
memory after 200 polls: 67 at each share of moving partitions.
"""

from __future__ import annotations

import argparse
import functools
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.bench.expected import publish
from tests.bench.fake_cluster import FakeCluster
from tests.bench.serve_costs import MOVE_INTERVAL, Plan, add_options, as_json, measure, plan_of, show, yardsticks


def run(partitions: int, per_topic: int, groups: int, plan: Plan, rounds: int) -> dict[str, Any]:
    """Measure on a cluster of so many partitions and groups; print the figures and return them."""
    topics = partitions // per_topic
    with FakeCluster(topics, per_topic, groups=groups) as cluster:
        cluster.command("create", "__consumer_offsets", 1)  # as every cluster of that size has
        move = functools.partial(cluster.command, "every", MOVE_INTERVAL)
        held_against = yardsticks(cluster.bootstrap, plan.shares, rounds, move)
        costs = measure(cluster.bootstrap, partitions, plan, move)
    print(f"\n{partitions} partitions of {topics} topics on three fake brokers, {groups} consumer groups")
    show(costs, held_against)
    return {"partitions": partitions, "topics": topics, "groups": groups, **as_json(costs, held_against)}


def publish_all(topics: int, per_topic: int, history: Path) -> None:
    """Publish expectations of so many topics of the fake cluster."""
    publish(history, "default", [f"bench-{number:04d}" for number in range(topics)], per_topic, time.time())


def main() -> None:
    """Print the tables, and save them as JSON where requested."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=100_000, help="how many, a multiple of --per-topic")
    parser.add_argument("--per-topic", type=int, default=100, help="partitions of each topic")
    parser.add_argument("--groups", type=int, nargs="+", default=[0, 500], help="numbers of consumer groups")
    parser.add_argument("--moving", type=float, nargs="+", default=[1, 10, 100], help="percent of partitions that move")
    parser.add_argument("--expectations", action="store_true", help="publish expectations of all partitions before")
    add_options(parser, polls=10, scrape_seconds=20)
    arguments = parser.parse_args()
    partitions, per_topic = arguments.partitions, arguments.per_topic
    if not 1 <= per_topic <= partitions or partitions % per_topic or min(arguments.groups) < 0:
        parser.error("--partitions must be a multiple of --per-topic, and --groups 0 or more")
    if not all(0 <= each <= 100 for each in arguments.moving):
        parser.error("--moving must be 0 to 100")
    plan = plan_of(parser, arguments, [each / 100 for each in arguments.moving])
    if arguments.expectations:
        plan = replace(plan, publish=functools.partial(publish_all, partitions // per_topic, per_topic))
    results = [run(partitions, per_topic, each, plan, arguments.yardstick_rounds) for each in arguments.groups]
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
