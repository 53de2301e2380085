"""The bench of detection: how fast a death is seen, at what rate of false alarms, by whom.

``make bench-detection`` prints one table for the same streams and the same cuts: simple rules, an oracle
that knows how the streams were made, the score and the product's own verdicts.
"""
