"""Metrics of probabilities against labels or evidence, and bootstrap intervals for them."""

from calibrank.metrics.binned import (
    ECE,
    MCE,
    DebiasedECE,
    EqualMass,
    EqualMassECE,
    EqualWidth,
    ReleasedECE,
    ReleasedMCE,
    ReliabilityCurve,
    reliability,
)
from calibrank.metrics.calibration_test import CalibrationTest, calibration_test
from calibrank.metrics.clustered_bootstrap import Estimate, bootstrap
from calibrank.metrics.field import FieldECE, FieldRCE
from calibrank.metrics.metric import Additive, Better, Metric
from calibrank.metrics.multicalibration import (
    MulticalibrationTest,
    SegmentGap,
    multicalibration_test,
)
from calibrank.metrics.pooled import Discrimination, Miscalibration
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
    "Additive",
    "Better",
    "Brier",
    "CalibrationInTheLarge",
    "CalibrationIntercept",
    "CalibrationSlope",
    "CalibrationTest",
    "ConstantLogLoss",
    "DebiasedECE",
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
    "Recalibration",
    "Recall",
    "ReleasedECE",
    "ReleasedMCE",
    "ReliabilityCurve",
    "SegmentGap",
    "SmoothECE",
    "bootstrap",
    "calibration_test",
    "multicalibration_test",
    "recalibration",
    "reliability",
]
