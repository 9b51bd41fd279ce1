"""Decide with a guarantee: cut lists so that promises about new users or queries are kept."""

from calibrank.decisions.certify import Predicted, control
from calibrank.decisions.cuts import CUTS, Cut, Gap, Rank, Threshold
from calibrank.decisions.guarantee import CutPoint, Guarantee
from calibrank.decisions.promises import PooledPrecision, Precision, Promise, Recall

__all__ = [
    "CUTS",
    "Cut",
    "CutPoint",
    "Gap",
    "Guarantee",
    "PooledPrecision",
    "Precision",
    "Predicted",
    "Promise",
    "Rank",
    "Recall",
    "Threshold",
    "control",
]
