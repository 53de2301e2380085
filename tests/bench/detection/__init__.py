"""The bench of detection: how fast a death is seen, at what rate of false alarms, by whom.

``make bench-detection`` prints one table for the same streams and the same cuts: simple rules, an oracle
that knows how the streams were made, and the product's own verdicts, with schedules and pauses and by its score alone.
What is the product's is computed by its core (``exporter.domain``).
"""
