"""What the exporter says: the catalogue of metrics, and their rendering."""
