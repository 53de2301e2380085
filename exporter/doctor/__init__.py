"""The command ``doctor``: checks that show what each finding costs and how to fix it. It writes nothing."""

from exporter.doctor.examination import examine, exit_code, unusable
from exporter.doctor.findings import Finding, Severity
from exporter.doctor.rendering import write

__all__ = ["Finding", "Severity", "examine", "exit_code", "unusable", "write"]
