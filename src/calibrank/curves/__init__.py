"""Calibrators: frozen configurations whose `fit` returns a calibration map."""

from calibrank.curves.auto import Auto, fit_without_each
from calibrank.curves.calibrator import Calibrator, Desiderata
from calibrank.curves.parametric import (
    Beta,
    Gamma,
    GammaGaussian,
    Gaussian,
    MinMax,
    Parametric,
    Platt,
    Sigmoid,
    Temperature,
)
from calibrank.curves.spline import Spline
from calibrank.curves.steps import BBQ, Histogram, Isotonic

__all__ = [
    "BBQ",
    "Auto",
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
    "Spline",
    "Temperature",
    "fit_without_each",
]
