"""Spark itself: the session and its jars, what its failures mean, frames, and Arrow batches that its workers get."""
