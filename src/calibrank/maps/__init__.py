"""Calibration maps: the immutable results that calibrators return and targets run."""

from calibrank.maps._blocks import Interval
from calibrank.maps.additive import AdditiveMap
from calibrank.maps.calibration_map import CalibrationMap
from calibrank.maps.describe import (
    describe_base_rate,
    describe_population,
    describe_range,
    describe_selection,
    is_base_rate_known,
)
from calibrank.maps.format import load
from calibrank.maps.grouped import GroupedMap, Segment
from calibrank.maps.logistic import LogisticMap
from calibrank.maps.piecewise import PiecewiseMap
from calibrank.maps.record import (
    Alternative,
    Anchoring,
    CandidateLoss,
    FitRecord,
    Population,
    Selection,
    Sensitivity,
)
from calibrank.maps.rescale import RescaleMap
from calibrank.maps.step import StepMap
from calibrank.maps.terms import CategoryTerm, Term
from calibrank.maps.top import TopMap

__all__ = [
    "AdditiveMap",
    "Alternative",
    "Anchoring",
    "CalibrationMap",
    "CandidateLoss",
    "CategoryTerm",
    "FitRecord",
    "GroupedMap",
    "Interval",
    "LogisticMap",
    "PiecewiseMap",
    "Population",
    "RescaleMap",
    "Segment",
    "Selection",
    "Sensitivity",
    "StepMap",
    "Term",
    "TopMap",
    "describe_base_rate",
    "describe_population",
    "describe_range",
    "describe_selection",
    "is_base_rate_known",
    "load",
]
