"""Calibrators: frozen configurations whose `fit` returns a calibration map."""

from calibrank.calibrators.auto import Auto
from calibrank.calibrators.baselines import MinMax, Sigmoid
from calibrank.calibrators.binning import BBQ, Histogram
from calibrank.calibrators.calibrator import Calibrator, Desiderata
from calibrank.calibrators.covariates import Covariates, list_means
from calibrank.calibrators.cross_validation import fit_without_each
from calibrank.calibrators.isotonic import CenteredIsotonic, Isotonic
from calibrank.calibrators.parametric import (
    Beta,
    Gamma,
    GammaGaussian,
    Gaussian,
    Parametric,
    Platt,
    Temperature,
)
from calibrank.calibrators.random_intercept import RandomIntercept
from calibrank.calibrators.segments import Segments
from calibrank.calibrators.spline import Spline

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
