"""How streams behave: hours of activity -> baselines. Knows nothing of polls and verdicts."""
