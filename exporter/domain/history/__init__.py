"""The rows of history: what the exporter writes, and the hours and days that a rollup makes of them."""
