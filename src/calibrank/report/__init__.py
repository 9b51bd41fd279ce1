"""Reports: one self-contained, interactive page on how far a table's probabilities can be trusted."""

from calibrank.report.build import Report, report

__all__ = ["Report", "report"]
