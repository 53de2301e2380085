"""Sends a report to people: mails, messages for Slack and Teams, and webhooks."""
