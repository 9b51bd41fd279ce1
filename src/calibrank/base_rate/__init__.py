"""The base rate of a map: from random labels, from a known rate, or assumed, with what that leaves open."""

from calibrank.base_rate.anchor import anchor, to_base_rate, undo_undersampling
from calibrank.base_rate.label_plan import Expected, plan
from calibrank.base_rate.sensitivity import Positives, Setting, fit_choices, with_sensitivity

__all__ = [
    "Expected",
    "Positives",
    "Setting",
    "anchor",
    "fit_choices",
    "plan",
    "to_base_rate",
    "undo_undersampling",
    "with_sensitivity",
]
