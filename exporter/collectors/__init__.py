"""Collectors: all that is read from a cluster on a schedule, one module for each."""
