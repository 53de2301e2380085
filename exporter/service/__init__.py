"""The running exporter: its scheduled jobs, its history and its pages."""
