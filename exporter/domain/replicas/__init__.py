"""Mirrored topics: which topics belong together, and what a replica lacks."""
