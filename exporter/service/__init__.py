"""The running exporter: its scheduled jobs, its history, its pages, and settings that are read again."""

from exporter.service.serving import Service

__all__ = ["Service"]
