"""Turn any ranking model's scores into preference probabilities you can trust.

>>> from calibrank import Gaussian, ips
>>> scores = [0.2, 1.0, 2.1, 3.5, 2.8]
>>> labels = [0, 1, 0, 1, 0]
>>> propensity = [0.5, 0.5, 1.0, 0.8, 0.9]
>>> fitted = Gaussian().fit(scores, ips(labels, propensity))
>>> probabilities = fitted.predict([1.5, 3.0])
"""

from calibrank.base_rate import (
    PropensityModel,
    anchor,
    fit_with_sensitivity,
    plan_labels,
    to_base_rate,
    undo_undersampling,
)
from calibrank.calibrators import (
    BBQ,
    Auto,
    Beta,
    Calibrator,
    CenteredIsotonic,
    Gamma,
    GammaGaussian,
    Gaussian,
    Histogram,
    Isotonic,
    MinMax,
    Platt,
    Sigmoid,
    Spline,
    Temperature,
)
from calibrank.errors import (
    CalibrankError,
    CalibrankWarning,
    ClippedScoresWarning,
    DataError,
    DroppedRowsWarning,
    FitError,
    FlatMapWarning,
    MissingExtraError,
)
from calibrank.evidence import (
    Evidence,
    impressions,
    ips,
    naive,
    positive_ips,
    undersampling_weights,
)
from calibrank.maps import CalibrationMap, Interval, load
from calibrank.metrics import (
    ECE,
    MCE,
    NDCG,
    Brier,
    CalibrationInTheLarge,
    Discrimination,
    EqualMassECE,
    Estimate,
    LogLoss,
    Metric,
    Miscalibration,
    Recall,
    ReleasedECE,
    ReleasedMCE,
    TopN,
    bootstrap,
    corp,
    reliability,
)
from calibrank.summary import Summary, SummaryBuilder
from calibrank.tables import Interactions, ScoreTable

__version__ = "0.1.0"

__all__ = [
    "BBQ",
    "ECE",
    "MCE",
    "NDCG",
    "Auto",
    "Beta",
    "Brier",
    "CalibrankError",
    "CalibrankWarning",
    "CalibrationInTheLarge",
    "CalibrationMap",
    "Calibrator",
    "CenteredIsotonic",
    "ClippedScoresWarning",
    "DataError",
    "Discrimination",
    "DroppedRowsWarning",
    "EqualMassECE",
    "Estimate",
    "Evidence",
    "FitError",
    "FlatMapWarning",
    "Gamma",
    "GammaGaussian",
    "Gaussian",
    "Histogram",
    "Interactions",
    "Interval",
    "Isotonic",
    "LogLoss",
    "Metric",
    "MinMax",
    "Miscalibration",
    "MissingExtraError",
    "Platt",
    "PropensityModel",
    "Recall",
    "ReleasedECE",
    "ReleasedMCE",
    "ScoreTable",
    "Sigmoid",
    "Spline",
    "Summary",
    "SummaryBuilder",
    "Temperature",
    "TopN",
    "anchor",
    "bootstrap",
    "corp",
    "fit_with_sensitivity",
    "impressions",
    "ips",
    "load",
    "naive",
    "plan_labels",
    "positive_ips",
    "reliability",
    "to_base_rate",
    "undersampling_weights",
    "undo_undersampling",
]
