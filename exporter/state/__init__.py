"""The present state of all clusters, fed by polls and collectors and shown as pages."""
