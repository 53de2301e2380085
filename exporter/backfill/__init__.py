"""History from before the exporter ran, from the broker's own time index."""
