"""Many topics that fell silent together are one incident, not many deaths.

The same as the exporter's ``incidents``, which a test holds beside it.
"""

from __future__ import annotations

from itertools import pairwise

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.window import WindowSpec

from exporter.domain import HELD_DAYS, HELD_LEAST, HELD_SECONDS, HELD_SHARE, Verdict
from spark_rollups.clock import HOURS, hours_since, moment_of, reading
from spark_rollups.rollups import WHOLE_TOPIC

_OVERDUE = (Verdict.SUSPECT.value, Verdict.DEAD.value)


def held_until(held_from: Column, face: Column) -> Column:
    """Return when an incident that began at ``held_from`` explains a silence no more, in hours since the first Monday.

    ``face`` is null where there is no traffic clock.
    """
    midnights = [F.get(face, F.lit(hour)) for hour in range(0, HOURS + 1, 24)]
    busiest = F.greatest(*(after - before for before, after in pairwise(midnights)))
    traffic = moment_of(face, reading(face, held_from) + HELD_DAYS * busiest)
    return F.greatest(held_from + HELD_SECONDS / 3600.0, F.coalesce(traffic, F.lit(0.0)))


def hold(rows: DataFrame) -> DataFrame:
    """Turn ``suspect`` and ``dead`` into ``held`` where an incident explains the silence.

    ``rows`` have, beside the columns of the stream and ``verdict``, ``promised`` (whether anything is),
    ``observed_until`` (a timestamp), ``held_from`` and ``held_until`` (hours since the first Monday) and
    ``leader`` (null for topics, and where there is none). Whether a stream belongs to an incident follows
    from its present silence alone. In the whole cluster topics are counted that crossed, as the union of
    their partitions; at a leader those of which all partitions led from there did.
    """
    until, topic = hours_since(F.col("observed_until")), F.col("partition").isNull()
    crossed = F.coalesce(
        F.col("promised") & (until > F.col("held_from")) & (until <= F.col("held_until")), F.lit(False)
    )
    of_cluster, of_topic = Window.partitionBy("cluster"), Window.partitionBy(*WHOLE_TOPIC)
    rows = rows.withColumn("crossed", crossed)
    large = _many(F.count_if(F.col("crossed") & topic), F.count_if(F.col("promised") & topic), of_cluster)
    rows = rows.withColumn("by_cluster", large & F.bool_or(F.col("crossed") & topic).over(of_topic))

    led = Window.partitionBy("cluster", "leader", "topic", "topic_id")
    of_leader = Window.partitionBy("cluster", "leader")
    free = F.col("promised") & ~topic & ~F.col("by_cluster") & F.col("leader").isNotNull()
    rows = rows.withColumn("free", free)
    first = F.row_number().over(led.orderBy(F.desc("free"), "partition")) == 1
    rows = rows.withColumns(
        {"first": first & F.col("free"), "silent": F.bool_and(F.when(F.col("free"), F.col("crossed"))).over(led)}
    )
    large = _many(F.count_if(F.col("first") & F.col("silent")), F.count_if("first"), of_leader)
    by_leader = F.col("free") & F.col("silent") & large
    rows = rows.withColumn("held", F.col("by_cluster") | (~topic & by_leader))

    partition = ~topic & F.col("promised")
    any_held = F.bool_or(~topic & F.col("held")).over(of_topic)
    any_free = F.bool_or(partition & ~F.col("held")).over(of_topic)
    # A topic goes with its partitions: it fell silent with them.
    held = F.col("held") | (topic & F.col("crossed") & any_held & ~any_free)
    held = held & F.col("verdict").isin(*_OVERDUE)
    return rows.withColumn("verdict", F.when(held, Verdict.HELD.value).otherwise(F.col("verdict"))).drop(
        "crossed", "by_cluster", "free", "first", "silent", "held"
    )


def _many(silent: Column, judged: Column, of: WindowSpec) -> Column:
    return silent.over(of) > F.greatest(HELD_SHARE * judged.over(of), F.lit(float(HELD_LEAST)))
