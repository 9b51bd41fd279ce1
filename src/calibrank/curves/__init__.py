"""Calibrators: frozen configurations whose `fit` returns a calibration map."""

from calibrank.curves.auto import Auto
from calibrank.curves.baselines import MinMax, Sigmoid
from calibrank.curves.binning import BBQ, Histogram
from calibrank.curves.calibrator import Calibrator, Desiderata
from calibrank.curves.covariates import Covariates, list_means
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
from calibrank.curves.random_intercept import RandomIntercept
from calibrank.curves.segments import Segments
from calibrank.curves.spline import Spline

__all__ = [
    "BBQ",
    "Auto",
    "Beta",
    "Calibrator",
    "CenteredIsotonic",
    "Covariates",
    "Desiderata",
    "Gamma",
    "GammaGaussian",
    "Gaussian",
    "Histogram",
    "Isotonic",
    "MinMax",
    "Parametric",
    "Platt",
    "RandomIntercept",
    "Segments",
    "Sigmoid",
    "Spline",
    "Temperature",
    "fit_without_each",
    "list_means",
]
