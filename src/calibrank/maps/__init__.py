"""Calibration maps: the immutable results that calibrators return and targets run."""

from calibrank.maps.calibration_map import CalibrationMap
from calibrank.maps.curve import Curve, Interval
from calibrank.maps.format import load
from calibrank.maps.level import LevelTerm
from calibrank.maps.logistic import LogisticCurve
from calibrank.maps.piecewise import PiecewiseCurve, RescaleCurve, StepCurve
from calibrank.maps.record import (
    Anchoring,
    CandidateLoss,
    FitRecord,
    JudgementSource,
    Population,
    Selection,
)
from calibrank.maps.sensitivity import Alternative, Sensitivity
from calibrank.maps.term import PositionTerm, SmoothTerm, Term

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
    "load",
]
