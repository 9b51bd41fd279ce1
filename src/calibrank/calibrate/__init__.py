"""Calibrators: frozen settings whose `fit` gives a map."""

from calibrank.calibrate.anchoring import anchor, to_base_rate, undo_undersampling
from calibrank.calibrate.binning import BBQ, Histogram
from calibrank.calibrate.calibrator import Calibrator, Desiderata
from calibrank.calibrate.folds import fit_without_each
from calibrank.calibrate.isotonic import Isotonic
from calibrank.calibrate.logistic import Beta, Gamma, GammaGaussian, Gaussian, Parametric, Platt, Temperature
from calibrank.calibrate.planning import Expected, plan
from calibrank.calibrate.rescale import MinMax, Sigmoid
from calibrank.calibrate.sensitivity import Positives, Setting, fit_choices, with_sensitivity

EVERY: tuple[Calibrator, ...] = (
    MinMax(),
    Sigmoid(),
    Histogram(),
    Isotonic(),
    BBQ(),
    Temperature(),
    Platt(),
    Beta(),
    Gaussian(),
    Gamma(),
    GammaGaussian(),
)
"""One of each kind, with its defaults: baselines, then non-parametric, then parametric methods."""

__all__ = [
    "BBQ",
    "EVERY",
    "Beta",
    "Calibrator",
    "Desiderata",
    "Expected",
    "Gamma",
    "GammaGaussian",
    "Gaussian",
    "Histogram",
    "Isotonic",
    "MinMax",
    "Parametric",
    "Platt",
    "Positives",
    "Setting",
    "Sigmoid",
    "Temperature",
    "anchor",
    "fit_choices",
    "fit_without_each",
    "plan",
    "to_base_rate",
    "undo_undersampling",
    "with_sensitivity",
]
