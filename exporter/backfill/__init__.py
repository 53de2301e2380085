"""Backfills history from before the exporter ran, with the brokers' time index."""
