"""Turn any ranking model's scores into preference probabilities you can trust."""

from calibrank.calibrate import (
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
from calibrank.errors import CalibrankError, DataError, FitError, FlatMapWarning, MissingExtra
from calibrank.maps import CalibrationMap, load
from calibrank.summary import Summary
from calibrank.weighting import Evidence, ips, naive, positive_ips
