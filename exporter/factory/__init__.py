"""Builds the parts of the exporter from its settings."""
