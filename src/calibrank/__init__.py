"""Turn any ranking model's scores into preference probabilities you can trust.

>>> from calibrank import Gaussian, ips
>>> scores = [0.2, 1.0, 2.1, 3.5, 2.8]
>>> labels = [0, 1, 0, 1, 0]
>>> propensity = [0.5, 0.5, 1.0, 0.8, 0.9]
>>> fitted = Gaussian().fit(scores, ips(labels, propensity))
>>> probabilities = fitted.predict([1.5, 3.0])
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from calibrank._internal import interrupt

if TYPE_CHECKING:
    from calibrank.anchoring import anchor, fit_with_sensitivity, plan_labels, to_base_rate
    from calibrank.curves import (
        BBQ,
        Auto,
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
        Spline,
        Temperature,
    )
    from calibrank.decisions import control
    from calibrank.errors import (
        CalibrankError,
        CalibrankWarning,
        DataError,
        FitError,
        MissingExtraError,
    )
    from calibrank.evidence import (
        Evidence,
        doubly_robust,
        impressions,
        ips,
        naive,
        positive_ips,
        undersampling_weights,
    )
    from calibrank.maps import CalibrationMap, Interval, load
    from calibrank.metrics import (
        ECE,
        Brier,
        LogLoss,
        Metric,
        SmoothECE,
        bootstrap,
        calibration_test,
        reliability,
    )
    from calibrank.model import Model
    from calibrank.summary import Summary, SummaryBuilder
    from calibrank.terms import Group, Level, Position, Smooth

__version__ = "0.1.0"

__all__ = [
    "BBQ",
    "ECE",
    "Auto",
    "Beta",
    "Brier",
    "CalibrankError",
    "CalibrankWarning",
    "CalibrationMap",
    "Calibrator",
    "DataError",
    "Evidence",
    "FitError",
    "Gamma",
    "GammaGaussian",
    "Gaussian",
    "Group",
    "Histogram",
    "Interval",
    "Isotonic",
    "Level",
    "LogLoss",
    "Metric",
    "MinMax",
    "MissingExtraError",
    "Model",
    "Platt",
    "Position",
    "Sigmoid",
    "Smooth",
    "SmoothECE",
    "Spline",
    "Summary",
    "SummaryBuilder",
    "Temperature",
    "anchor",
    "bootstrap",
    "calibration_test",
    "control",
    "doubly_robust",
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
]

_HOMES = (
    *("errors", "evidence", "summary", "maps", "terms", "model", "curves", "metrics"),
    *("anchoring", "decisions"),
)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `calibrank --help` needs none, nor numpy."""
    if name in _HOMES:
        return import_module(f"calibrank.{name}")
    for home in _HOMES if name in __all__ else ():
        module = import_module(f"calibrank.{home}")
        if hasattr(module, name):
            globals()[name] = getattr(module, name)
            return globals()[name]
    raise AttributeError(f"module 'calibrank' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]


interrupt.raise_on_interrupt()
