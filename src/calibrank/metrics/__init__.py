"""Metrics of probabilities against labels or evidence, and bootstrap intervals for them."""

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
from calibrank.metrics.calibration_test import CalibrationTest, calibration_test
from calibrank.metrics.cluster_ratios import Clusters, Ratios
from calibrank.metrics.clustered_bootstrap import (
    RESAMPLES,
    ClusterSums,
    Estimate,
    bootstrap,
    bootstrap_sums,
    cluster_sums,
)
from calibrank.metrics.corp import Decomposition, Discrimination, Miscalibration, corp
from calibrank.metrics.debiased import DebiasedECE
from calibrank.metrics.field import FieldECE, FieldRCE
from calibrank.metrics.metric import Additive, Better, Metric
from calibrank.metrics.multicalibration import (
    MulticalibrationTest,
    SegmentGap,
    multicalibration_test,
)
from calibrank.metrics.proper import (
    Brier,
    CalibrationInTheLarge,
    ConstantLogLoss,
    LogLoss,
    LogLossGain,
)
from calibrank.metrics.ranking import AUC, GAUC, NDCG, Recall
from calibrank.metrics.recalibration import (
    CalibrationIntercept,
    CalibrationSlope,
    Recalibration,
    recalibration,
)
from calibrank.metrics.smooth import SmoothECE

__all__ = [
    "AUC",
    "ECE",
    "GAUC",
    "MCE",
    "NDCG",
    "RESAMPLES",
    "Additive",
    "Better",
    "Brier",
    "CalibrationInTheLarge",
    "CalibrationIntercept",
    "CalibrationSlope",
    "CalibrationTest",
    "ClusterSums",
    "Clusters",
    "ConstantLogLoss",
    "DebiasedECE",
    "Decomposition",
    "Discrimination",
    "EqualMass",
    "EqualMassECE",
    "EqualWidth",
    "Estimate",
    "FieldECE",
    "FieldRCE",
    "LogLoss",
    "LogLossGain",
    "Metric",
    "Miscalibration",
    "MulticalibrationTest",
    "Ratios",
    "Recalibration",
    "Recall",
    "ReleasedECE",
    "ReleasedMCE",
    "ReliabilityCurve",
    "SegmentGap",
    "SmoothECE",
    "bootstrap",
    "bootstrap_sums",
    "calibration_test",
    "cluster_sums",
    "corp",
    "multicalibration_test",
    "recalibration",
    "reliability",
]
