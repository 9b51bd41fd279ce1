"""Reports: one self-contained interactive HTML page about the calibration of a table."""

from calibrank.report.html_report import Report, report

__all__ = ["Report", "report"]
