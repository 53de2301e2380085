"""What each column of the tables means: the comments that ``DESCRIBE TABLE`` shows."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.types import StructField, StructType

_EVERYWHERE: Mapping[str, str] = {
    "cluster": "Name of the Kafka cluster in the configuration of the exporter",
    "topic": "Name of the topic",
    "topic_id": "Id of the topic; one that was deleted and made again has another; null where brokers give none",
    "partition": "Number of the partition; null: the topic as the union of its partitions",
    "date": "UTC day by which the table is partitioned",
    "exporter": "Name of the exporter that wrote the row",
    "source": "poll or backfill",
    "as_of": "The moment that was judged",
    "window_start": "Begin of the interval",
    "window_end": "End of the interval",
    "polls_ok": "Polls that could read it",
    "reason": "Why it could not be read; null where it could",
    "first_advance": "First moment at which the end offset was seen to be larger than before",
    "last_advance": "Last moment at which the end offset was seen to be larger than before",
    "records": "Records written, by offsets",
    "end_offset": "Offset after the newest record",
    "leader": "Broker that leads the partition; null: none",
    "max_timestamp": "Timestamp of the newest record, as its producer set it",
    "offset_regressions": "How often the end offset fell",
    "observed_at": "When the row was observed",
    "state": "What the newest poll saw of it",
    "timestamp_type": "message.timestamp.type of the topic",
    "owner": "Owner by the configuration of the exporter",
    "deleted": "The partition is there no more",
    "week": "Monday of the week in which a silence begins",
    "active_slots": "Slots with an advance",
    "weeks": "Weeks with a silence to learn from",
    "history_start": "Begin of what it was learned from",
    "slot_seconds": "Length of a slot, in seconds",
    "largest_silent_slots": "Slots of the longest silence that ended in an advance",
    "largest_silence_end": "End of that silence",
    "largest_silence_seconds": "Length of that silence, in seconds",
    "largest_missed": "Advances that were expected during the most unusual silence",
    "suspect_silence_seconds": "Silence from which a slow and regular stream is suspect, in seconds",
    "max_silence_seconds": "Silence from which it is dead, in seconds; by configuration or by its own rhythm",
    "suspect_score": "Silence score from which a stream is suspect",
    "dead_score": "Silence score from which a stream is dead",
    "profile": "Advances expected in each of the 168 hours of the week",
    "clock_step": "Expected advances of a mean slot: what a silence has at least",
    "log_mean": "Mean of the logarithm of expected advances in silences; null: too little evidence",
    "log_spread": "Spread of that logarithm",
    "pause_slots": "Missed slots up to which a silence is a pause that its own past holds; null: none",
    "schedule": "When its runs are due; null: it has no schedule",
    "weekly_scores": "Largest value of that logarithm in each week that taught it",
    "kind": "topic or partition",
    "observed_seconds": "How long it was observed, in seconds",
}

_OF_TABLES: Mapping[str, Mapping[str, str]] = {
    "windows": {
        "observed_seconds": "Seconds of the interval that polls cover",
        "advances": "Polls at which the end offset was larger than before; null of a backfill",
        "max_inner_gap_seconds": "Longest time between two advances, in seconds",
        "resolution_seconds": "How exactly the moments are known, in seconds",
        "start_offset": "End offset before the interval",
        "log_start_offset": "Offset of the oldest record",
        "future_timestamps": "Polls that saw a timestamp ahead of the clock",
    },
    "coverage": {
        "polls_total": "Polls that were tried",
        "polls_ok": "Polls that succeeded",
        "partitions_ok": "Partitions that were read in the last poll",
        "partitions_failed": "Partitions that were not",
        "last_good_poll": "The last poll that succeeded",
        "interval_seconds": "Time from poll to poll, in seconds",
    },
    "inventory": {
        "earliest_offset": "Offset of the oldest record",
        "latest_offset": "Offset after the newest record",
        "cleanup_policy": "cleanup.policy of the topic",
        "retention_seconds": "retention.ms of the topic, in seconds; infinite: nothing is deleted",
    },
    "relations": {
        "consumer_groups": "Consumer groups that committed in it, or have it assigned",
        "groups_without_members": "Those of them that had no member",
        "replica_of_cluster": "Cluster of its source, where it is a replica",
        "replica_of_topic": "Topic of its source",
        "replica_state": "How it stands to its source",
        "disk_bytes": "Bytes of all its replicas on disk",
        "producers": "Producers that are known to the brokers",
        "readers": "Names of up to 20 of these consumer groups, a JSON array",
    },
    "ingested_files": {
        "table": "Table of the spool",
        "file": "Name of the spool file",
        "rows": "Its rows",
        "table_rows": "Rows that the table held once it had those of the file; it never holds fewer again",
    },
    "daily": {
        "active": "Bit h: an advance is known in the hour from h:00 UTC",
        "unknown": "Bit h: records were written around that hour at unknown moments",
        "counted": "Bit h: the records of that hour are counted",
        "records": "Records of the day",
        "source": "poll as soon as a poll contributed, else backfill",
        "first_ms": "Of each active hour: its first advance, in milliseconds within the hour",
        "last_ms": "Of each active hour: its last advance, in milliseconds within the hour",
        "fives": "Of each active hour: a bit for each five minutes with an advance; 0: not told so finely",
        "hour_records": "Of each counted hour: its records",
        "offset_before": "End offset known as the day began",
        "advance_before": "Last advance known as the day began",
        "slots_before": "Active hours known as the day began",
    },
    "streams": {
        "known_since": "First advance that is known",
        "known_slots": "Active hours since then",
        "polled_from": "First poll that listed it",
        "polled_offset": "Its end offset at that poll",
        "listed_at": "When the inventory last listed it",
        "latest_offset": "Its end offset then",
        "observed_until": "Up to when polls prove its silence",
        "unreadable_since": "Since when no poll can read it; null: it can be read",
        "unreadable_reason": "Why",
    },
    "drops": {
        "judged": "Topics that are usually active on this day of the week",
        "topics": "Those that were active in at most two fifths of their usual hours",
    },
    "maxima": {
        "week_ended": "Monday of the week in which the silence ended",
        "score": "Largest score of those silences; null: it was never silent",
        "overdue": "When it became longer than usual; null where it is not unusual",
        "silent_from": "Begin of that silence, where it is unusual",
        "silent_until": "End of that silence, where it is unusual",
    },
    "calibration": {
        "promised": "False alarms promised in 1,000 topic-weeks; null while the prior decides",
        "fitted_topic_weeks": "Topic-weeks that thresholds were fitted to",
        "judged_topic_weeks": "Topic-weeks that earlier thresholds judged",
        "false_alarms": "False alarms among these",
        "realised": "False alarms in 1,000 of these",
        "realised_low": "Lower bound of that rate, with 95 % confidence",
        "realised_high": "Upper bound of that rate, with 95 % confidence",
        "outages": "Repaired outages with an unusual score",
        "outages_alarmed": "Those of them that were called dead",
        "alarms_a_week": "Alarms a week to expect, false or in an outage; null: nothing was judged yet",
        "outages_seen": "Share of the outages that the present threshold calls dead; null where there were none",
        "topics": "Topics that count in a week (for partitions: with several): a rate times these is a number a week",
    },
    "verdicts": {
        "verdict": "live, quiet, suspect, dead, retired, held, learning or muted",
        "observed_until": "Up to when polls prove its silence",
        "silence_seconds": "Time from the last advance to the end of what is proved, in seconds",
        "missed_slots": "Advances that were expected during the silence",
        "suspect_from": "When it becomes suspect unless it advances",
        "expected_by": "When it becomes dead unless it advances",
        "silence_score": "How unusual the silence is",
        "partitions": "Partitions of the topic",
        "partitions_live": "Those of them that are live or quiet",
        "records_7d": "Records of the seven days before as_of",
        "dead_since": "When the silence passed its limit; null: it did not",
        "deletion_candidate": "Nobody needs it any more: dead for long, and without readers; null: not known",
        "rule": "What it was judged by",
        "incident": "Name of the incident that holds it; null: none",
        "evidence": "Why, in one line",
    },
}


def commented(table: str, schema: StructType) -> StructType:
    """Return the schema of a table with what its columns mean."""
    told = {**_EVERYWHERE, **_OF_TABLES.get(table, {})}
    return StructType(
        [
            StructField(one.name, one.dataType, one.nullable, {"comment": told.get(one.name, "")})
            for one in schema.fields
        ]
    )
