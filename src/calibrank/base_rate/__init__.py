"""The base rate of a map: from random labels, from a known rate, or assumed, with what that leaves open."""

from calibrank.base_rate.anchor import anchor, to_base_rate, undo_undersampling
from calibrank.base_rate.label_plan import ExpectedError, plan_labels
from calibrank.base_rate.sensitivity import (
    Positives,
    PropensityModel,
    fit_with_sensitivity,
    with_sensitivity,
)

__all__ = [
    "ExpectedError",
    "Positives",
    "PropensityModel",
    "anchor",
    "fit_with_sensitivity",
    "plan_labels",
    "to_base_rate",
    "undo_undersampling",
    "with_sensitivity",
]
