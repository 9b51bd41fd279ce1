"""The base rate of a map: from random labels, a known rate, or assumed with a sensitivity band."""

from calibrank.base_rate.activity import (
    AssumedRate,
    assume_rate_from_activity,
    to_assumed_rate,
)
from calibrank.base_rate.anchor import anchor
from calibrank.base_rate.exploration import Exploration, choose_pairs
from calibrank.base_rate.known_rate import compare_with_constant, to_base_rate, undo_undersampling
from calibrank.base_rate.label_plan import ExpectedError, plan_labels
from calibrank.base_rate.propensity_model import Positives, PropensityModel
from calibrank.base_rate.sampling import with_sampling_range
from calibrank.base_rate.segments import anchor_by_segment
from calibrank.base_rate.sensitivity import fit_with_sensitivity, with_sensitivity

__all__ = [
    "AssumedRate",
    "ExpectedError",
    "Exploration",
    "Positives",
    "PropensityModel",
    "anchor",
    "anchor_by_segment",
    "assume_rate_from_activity",
    "choose_pairs",
    "compare_with_constant",
    "fit_with_sensitivity",
    "plan_labels",
    "to_assumed_rate",
    "to_base_rate",
    "undo_undersampling",
    "with_sampling_range",
    "with_sensitivity",
]
