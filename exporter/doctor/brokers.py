"""Checks a cluster's brokers by one poll and one connection to each address."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from exporter.doctor.findings import Finding, Severity, from_error
from exporter.domain.arrays import Codes
from exporter.domain.formatting import named, plural, some
from exporter.domain.polls.answers import reason_of_code
from exporter.domain.polls.layout import NO_LEADER
from exporter.domain.polls.readings import Reason
from exporter.domain.polls.table import UNREADABLE, Snapshot
from exporter.kafka.connect_result import ConnectResult

MAX_TIMESTAMP_SINCE = 7
"""The version of ListOffsets that introduced MAX_TIMESTAMP (KIP-734)."""

_KAFKA = {7: "Kafka 3.0 to 3.4", 8: "Kafka 3.5 to 3.8", 9: "Kafka 3.9", 10: "Kafka 4.0 or 4.1"}


@dataclass(frozen=True, slots=True)
class PolledCluster:
    """One poll of a cluster, and the result of connecting to each address of its brokers and of bootstrap.servers."""

    snapshot: Snapshot
    reached: Mapping[str, ConnectResult]

    def led_by(self, broker: int) -> int:
        """Return how many of the watched partitions a broker leads."""
        return int(np.count_nonzero(self.snapshot.table.leader_now == broker))


def listeners(seen: PolledCluster) -> Iterator[Finding]:
    """Check every address: those that brokers advertise and those of bootstrap.servers."""
    check, brokers = "listeners", seen.snapshot.metadata.brokers
    good = []
    for broker, address in sorted(brokers.items()):
        found = seen.reached[address]
        if found.reason is None:
            good.append(address)
            continue
        led = plural(seen.led_by(broker), "watched partition")
        costs = f"{led} led by it: unreadable, their silence is not proved"
        prefix = f"broker {broker} advertises {address}: "
        yield from_error(check, Severity.ERROR, found.detail, costs, prefix=prefix)
    for address, found in seen.reached.items():
        if found.reason is not None and address not in brokers.values():
            costs = "the exporter can start only by the other addresses of bootstrap.servers"
            yield from_error(
                check, Severity.WARNING, found.detail, costs, prefix=f"bootstrap.servers names {address}: "
            )
    if good:
        what = f"{len(good)} of {plural(len(brokers), 'broker')} reached at the address advertised: {some(good)}"
        yield Finding(check, Severity.OK, what)
    yield from _absent_brokers(seen)


def _absent_brokers(seen: PolledCluster) -> Iterator[Finding]:
    metadata = seen.snapshot.metadata
    away = sorted(set(np.unique(metadata.membership.replicas).tolist()) - metadata.brokers.keys())
    led_by_none = int(np.count_nonzero(metadata.membership.leader == NO_LEADER))
    if not away:
        return
    what = f"{named('broker', away)} should hold replicas, but the cluster does not list it as up"
    costs = "none now: others lead its partitions"
    if led_by_none:
        costs = f"{plural(led_by_none, 'watched partition')} without a leader: unreadable, their silence is not proved"
    severity = Severity.ERROR if led_by_none else Severity.NOTE
    yield Finding("listeners", severity, what, costs, "start it again, or reassign its replicas")


def versions(seen: PolledCluster) -> Iterator[Finding]:
    """Check which brokers support MAX_TIMESTAMP: by their answers, else by the protocol versions that they list."""
    alike: dict[tuple[bool | None, int | None], list[int]] = defaultdict(list)
    for broker, address in sorted(seen.snapshot.metadata.brokers.items()):
        found = seen.reached[address]
        proved = seen.snapshot.max_timestamp_supported.get(broker)
        if found.reason is not None and proved is None:
            continue
        spoken = found.list_offsets_version
        knows = proved if proved is not None or spoken is None else spoken >= MAX_TIMESTAMP_SINCE
        alike[knows, spoken].append(broker)
    for (knows, spoken), brokers in alike.items():
        which = f"{named('broker', brokers)} ({_kafka(spoken)})"
        if knows:
            yield Finding("versions", Severity.OK, f"{which}: MAX_TIMESTAMP is supported")
        elif knows is None:
            costs = "none known; each poll checks it, and the log says where it is not"
            yield Finding("versions", Severity.NOTE, f"{which}: whether MAX_TIMESTAMP is supported is unknown", costs)
        else:
            led = plural(sum(map(seen.led_by, brokers)), "watched partition")
            yield Finding(
                "versions",
                Severity.WARNING,
                f"{which}: MAX_TIMESTAMP is not supported (KIP-734)",
                f"{led} led there without a newest timestamp (state unsupported); silence is judged by offsets",
                "upgrade to Kafka 3.0 or newer; the exporter notices it at the next poll",
            )


def _kafka(spoken: int | None) -> str:
    if spoken is None:
        return "version unknown"
    return _KAFKA.get(spoken, "Kafka before 3.0" if spoken < MAX_TIMESTAMP_SINCE else "Kafka 4.2 or newer")


def readings(seen: PolledCluster) -> Iterator[Finding]:
    """Check how many of the watched partitions could be read, and of how many only the offsets."""
    table = seen.snapshot.table
    lost = _counted(table.unread[~table.read])
    undated = _counted(table.reason[table.read & (table.state == UNREADABLE)])
    # The check of rights reports what is forbidden.
    lost.pop(Reason.UNAUTHORIZED, None)
    partitions, took = plural(len(table), "partition"), f"in {seen.snapshot.duration_seconds:.1f} s"
    if lost:
        yield Finding(
            "poll",
            Severity.WARNING,
            f"{lost.total():,} of {partitions} gave no answer {took}: {_reasons(lost)}",
            "their silence is not proved while this lasts: no verdict dead, and gaps in history",
            "fix what the other lines name; poll.request_timeout (and poll.interval) where brokers are slow",
        )
    else:
        yield Finding("poll", Severity.OK, f"{partitions} read {took}")
    if undated:
        yield Finding(
            "poll",
            Severity.WARNING,
            f"{undated.total():,} of {partitions} returned offsets but no newest record: {_reasons(undated)}",
            "their newest timestamp and staleness are unknown while this lasts; silence is judged by offsets",
            "see the broker's log; storage-error means that it lost a log directory",
        )


def _counted(codes: Codes) -> Counter[Reason | None]:
    """Count reason codes; reasons are in the order in which they first appear."""
    found, first, counts = np.unique(codes, return_index=True, return_counts=True)
    counted: Counter[Reason | None] = Counter()
    for at in np.argsort(first).tolist():
        counted[reason_of_code(int(found[at]))] += int(counts[at])
    return counted


def _reasons(counts: Counter[Reason | None]) -> str:
    return ", ".join(f"{reason} {number:,}" for reason, number in counts.most_common())
