"""Calibrators: frozen configurations whose `fit` returns a calibration map."""

from calibrank.curves.auto import Auto
from calibrank.curves.baselines import MinMax, Sigmoid
from calibrank.curves.binning import BBQ, Histogram
from calibrank.curves.calibrator import Calibrator, Desiderata
from calibrank.curves.cross_validation import fit_without_each
from calibrank.curves.isotonic import CenteredIsotonic, Isotonic
from calibrank.curves.parametric import (
    Beta,
    Gamma,
    GammaGaussian,
    Gaussian,
    Parametric,
    Platt,
    Temperature,
)
from calibrank.curves.spline import Spline

__all__ = [
    "BBQ",
    "Auto",
    "Beta",
    "Calibrator",
    "CenteredIsotonic",
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
    "Spline",
    "Temperature",
    "fit_without_each",
]
