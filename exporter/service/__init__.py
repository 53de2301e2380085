"""The running exporter: its scheduled jobs, its history and its pages."""

from exporter.service.serving import Service

__all__ = ["Service"]
