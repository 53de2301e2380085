"""Backfills history from before the exporter ran, by the brokers' time index."""
