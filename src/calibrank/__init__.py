"""Turn any ranking model's scores into preference probabilities you can trust.

>>> from calibrank import Gaussian, ips
>>> scores, labels, propensity = [0.2, 1.0, 2.1, 3.5, 2.8], [0, 1, 0, 1, 0], [0.5, 0.5, 1.0, 0.8, 0.9]
>>> probabilities = Gaussian().fit(scores, ips(labels, propensity)).predict([1.5, 3.0])
"""

from calibrank.base_rate import Setting, anchor, fit_choices, plan, to_base_rate, undo_undersampling
from calibrank.calibrators import (
    BBQ,
    Beta,
    Calibrator,
    Gamma,
    GammaGaussian,
    Gaussian,
    Histogram,
    Isotonic,
    MinMax,
    Platt,
    Sigmoid,
    Temperature,
)
from calibrank.errors import (
    CalibrankError,
    DataError,
    FitError,
    FlatMapWarning,
    LeftOutWarning,
    MissingExtra,
    PiledScoresWarning,
)
from calibrank.evidence import Evidence, exposed, ips, naive, positive_ips, undersampled
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
    "Beta",
    "Brier",
    "CalibrankError",
    "CalibrationInTheLarge",
    "CalibrationMap",
    "Calibrator",
    "DataError",
    "Discrimination",
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
    "LeftOutWarning",
    "LogLoss",
    "Metric",
    "MinMax",
    "Miscalibration",
    "MissingExtra",
    "PiledScoresWarning",
    "Platt",
    "Recall",
    "ReleasedECE",
    "ReleasedMCE",
    "ScoreTable",
    "Setting",
    "Sigmoid",
    "Summary",
    "SummaryBuilder",
    "Temperature",
    "TopN",
    "anchor",
    "bootstrap",
    "corp",
    "exposed",
    "fit_choices",
    "ips",
    "load",
    "naive",
    "plan",
    "positive_ips",
    "reliability",
    "to_base_rate",
    "undersampled",
    "undo_undersampling",
]
