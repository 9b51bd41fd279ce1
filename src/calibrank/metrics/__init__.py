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
from calibrank.metrics.clustered_bootstrap import (
    Estimate,
    GroupSums,
    about,
    bootstrap,
    bootstrap_sums,
    group_sums,
)
from calibrank.metrics.corp import Decomposition, Discrimination, Miscalibration, OnCells, corp
from calibrank.metrics.metric import Additive, Better, Metric
from calibrank.metrics.proper import Brier, CalibrationInTheLarge, LogLoss
from calibrank.metrics.ranking import NDCG, Recall, TopN

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
    "GroupSums",
    "LogLoss",
    "Metric",
    "Miscalibration",
    "OnCells",
    "Recall",
    "ReleasedECE",
    "ReleasedMCE",
    "ReliabilityCurve",
    "TopN",
    "about",
    "bootstrap",
    "bootstrap_sums",
    "corp",
    "group_sums",
    "reliability",
]
