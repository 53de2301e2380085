"""Sends a report to people by apprise, and records who got it."""
