"""Tests of the report compare few methods unless they share the report of a module."""

from tests.report.quick import few_methods

__all__ = ["few_methods"]
