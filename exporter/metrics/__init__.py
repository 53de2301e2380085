"""The metrics of the exporter: their catalogue, and their rendering."""
