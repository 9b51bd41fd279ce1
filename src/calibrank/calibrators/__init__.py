"""Calibrators: frozen configurations whose `fit` returns a calibration map."""

from calibrank.calibrators.baselines import MinMax, Sigmoid
from calibrank.calibrators.binning import BBQ, Histogram
from calibrank.calibrators.calibrator import Calibrator, Desiderata
from calibrank.calibrators.cross_validation import fit_without_each
from calibrank.calibrators.isotonic import Isotonic
from calibrank.calibrators.parametric import (
    Beta,
    Gamma,
    GammaGaussian,
    Gaussian,
    Parametric,
    Platt,
    Temperature,
)

__all__ = [
    "BBQ",
    "Beta",
    "Calibrator",
    "Desiderata",
    "Gamma",
    "GammaGaussian",
    "Gaussian",
    "Histogram",
    "Isotonic",
    "MinMax",
    "Parametric",
    "Platt",
    "Sigmoid",
    "Temperature",
    "fit_without_each",
]
