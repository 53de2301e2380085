"""Spool files of the exporter, and how their rows get into tables."""
