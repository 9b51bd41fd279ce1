"""Calibration maps: the immutable results that calibrators return and targets run."""

from calibrank.maps._blocks import Interval
from calibrank.maps.calibration_map import CalibrationMap
from calibrank.maps.curve import Curve
from calibrank.maps.describe import (
    describe_base_rate,
    describe_population,
    describe_range,
    describe_selection,
    is_base_rate_known,
)
from calibrank.maps.format import load
from calibrank.maps.level import LevelTerm
from calibrank.maps.logistic import LogisticCurve
from calibrank.maps.piecewise import PiecewiseCurve
from calibrank.maps.position import PositionTerm
from calibrank.maps.record import (
    Alternative,
    Anchoring,
    CandidateLoss,
    FitRecord,
    JudgementSource,
    Population,
    Selection,
    Sensitivity,
)
from calibrank.maps.rescale import RescaleCurve
from calibrank.maps.smooth import SmoothTerm
from calibrank.maps.step import StepCurve
from calibrank.maps.term import Term

__all__ = [
    "Alternative",
    "Anchoring",
    "CalibrationMap",
    "CandidateLoss",
    "Curve",
    "FitRecord",
    "Interval",
    "JudgementSource",
    "LevelTerm",
    "LogisticCurve",
    "PiecewiseCurve",
    "Population",
    "PositionTerm",
    "RescaleCurve",
    "Selection",
    "Sensitivity",
    "SmoothTerm",
    "StepCurve",
    "Term",
    "describe_base_rate",
    "describe_population",
    "describe_range",
    "describe_selection",
    "is_base_rate_known",
    "load",
]
