"""The base rate of a map: from random labels, a known rate, or assumed with a sensitivity band."""

from calibrank.base_rate.activity import (
    AssumedRate,
    assume_rate_from_activity,
    to_assumed_rate,
)
from calibrank.base_rate.anchor import anchor
from calibrank.base_rate.covariates import anchor_with_covariates
from calibrank.base_rate.exploration import Exploration, choose_pairs
from calibrank.base_rate.known_rate import compare_with_constant, to_base_rate, undo_undersampling
from calibrank.base_rate.label_plan import ExpectedError, plan_labels
from calibrank.base_rate.propensity_model import Positives, PropensityModel
from calibrank.base_rate.sampling import with_sampling_range
from calibrank.base_rate.segments import anchor_by_segment
from calibrank.base_rate.sensitivity import fit_with_sensitivity, with_sensitivity
from calibrank.base_rate.top import anchor_top, choose_top_pairs, list_ranks

__all__ = [
    "AssumedRate",
    "ExpectedError",
    "Exploration",
    "Positives",
    "PropensityModel",
    "anchor",
    "anchor_by_segment",
    "anchor_top",
    "anchor_with_covariates",
    "assume_rate_from_activity",
    "choose_pairs",
    "choose_top_pairs",
    "compare_with_constant",
    "fit_with_sensitivity",
    "list_ranks",
    "plan_labels",
    "to_assumed_rate",
    "to_base_rate",
    "undo_undersampling",
    "with_sampling_range",
    "with_sensitivity",
]
