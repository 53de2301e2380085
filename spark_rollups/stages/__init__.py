"""What follows from windows: days, baselines, thresholds, verdicts, what is published; and upkeep of the tables."""
