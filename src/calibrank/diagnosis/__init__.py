"""Checks of a table before a fit: what it identifies, what is wrong with it, what to collect."""

from calibrank.diagnosis.diagnose import attach_sensitivity, diagnose
from calibrank.diagnosis.table_checks import Finding, check_balance

__all__ = ["Finding", "attach_sensitivity", "check_balance", "diagnose"]
