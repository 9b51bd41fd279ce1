"""Checks of a table before a fit: what it identifies, what is wrong with it, what to collect."""

from calibrank.diagnosis.balance import check_balance
from calibrank.diagnosis.diagnose import Diagnosis, attach_sensitivity, diagnose
from calibrank.diagnosis.distribution import score_quantiles
from calibrank.diagnosis.finding import Finding, Severity

__all__ = [
    "Diagnosis",
    "Finding",
    "Severity",
    "attach_sensitivity",
    "check_balance",
    "diagnose",
    "score_quantiles",
]
