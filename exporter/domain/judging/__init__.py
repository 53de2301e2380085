"""Verdicts and the evidence for them, now and in a rollup, and how people look them up."""
