"""Calibrators: frozen settings whose `fit` gives a map."""

from calibrank.calibrate.binning import BBQ, Histogram
from calibrank.calibrate.calibrator import Calibrator, Desiderata
from calibrank.calibrate.isotonic import Isotonic
from calibrank.calibrate.logistic import Beta, Gamma, GammaGaussian, Gaussian, Parametric, Platt, Temperature
from calibrank.calibrate.rescale import MinMax, Sigmoid

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
]
