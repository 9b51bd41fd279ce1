"""Metrics over probabilities and labels or evidence, and intervals for them."""

from calibrank.metrics.binned import (
    ECE,
    MCE,
    EqualMass,
    EqualMassECE,
    EqualWidth,
    ReleasedECE,
    ReleasedMCE,
    ReliabilityCurve,
    reliability,
)
from calibrank.metrics.corp import Decomposition, Discrimination, Miscalibration, corp
from calibrank.metrics.metric import Additive, Better, Metric
from calibrank.metrics.proper import Brier, CalibrationInTheLarge, LogLoss
from calibrank.metrics.ranking import NDCG, Recall, TopN
from calibrank.metrics.resample import Estimate, bootstrap, bootstrap_sums, group_sums

__all__ = [
    "ECE",
    "MCE",
    "NDCG",
    "Additive",
    "Better",
    "Brier",
    "CalibrationInTheLarge",
    "Decomposition",
    "Discrimination",
    "EqualMass",
    "EqualMassECE",
    "EqualWidth",
    "Estimate",
    "LogLoss",
    "Metric",
    "Miscalibration",
    "Recall",
    "ReleasedECE",
    "ReleasedMCE",
    "ReliabilityCurve",
    "TopN",
    "bootstrap",
    "bootstrap_sums",
    "corp",
    "group_sums",
    "reliability",
]
