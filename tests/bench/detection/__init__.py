"""The bench of detection: how fast a death is seen, at what rate of false alarms, by the product's core."""
