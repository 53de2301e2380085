"""Time lags as the exporter measures them on a real broker, and the records that they are held against."""

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError
from confluent_kafka import TopicPartition as Named

from tests.groups import GroupPartition
from tests.integration.sweeping import Swept
from tests.timelog import Log
from tests.workbench import QUIET, Workbench

TOLERANCE = 1.0


def measuring(bootstrap: str, names: str) -> Swept:
    """Sweeps over topics and groups of these names, with time lags."""
    return Swept(bootstrap, names, tolerance=TOLERANCE)


def read(workbench: Workbench, topic: str, partition: int = 0) -> Log:
    """Read every record of a partition, as a group would: what is true of it."""
    consumer = Consumer(
        {"bootstrap.servers": workbench.bootstrap, "group.id": "none", "enable.partition.eof": True, **QUIET}
    )
    low, high = consumer.get_watermark_offsets(Named(topic, partition), timeout=30)
    consumer.assign([Named(topic, partition, OFFSET_BEGINNING)])
    records: list[tuple[int, int]] = []
    while (message := consumer.poll(30)) is not None and not message.error():
        records.append((message.offset() or 0, message.timestamp()[1]))
    consumer.close()
    ended = None if message is None else message.error()
    assert ended is not None and ended.code() == KafkaError._PARTITION_EOF, ended  # noqa: SLF001 - named so
    return Log(records, high, low)


def holds(log: Log, position: GroupPartition, at: float, *, compacted: bool = False) -> None:
    """Assert that the time lag is true to within its error bound, and that this is as narrow as promised."""
    truth = log.truth(max(position.committed, log.earliest), compacted=compacted)
    lag = position.time_lag
    assert truth is not None and lag is not None, position
    assert abs(lag.seconds - max(0.0, at - truth / 1000)) <= lag.error_bound + 0.001, position
    assert 2 * lag.error_bound <= max(TOLERANCE, 0.051 * lag.seconds), position
