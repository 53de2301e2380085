"""The vocabulary that all rooms share: one word for each idea.

Times are Unix seconds (float, UTC), durations are seconds, offsets are Kafka offsets. ``None`` always means *unknown*;
no sentinel (-1, -1001, NaN) leaves ``exporter.kafka``.
"""
