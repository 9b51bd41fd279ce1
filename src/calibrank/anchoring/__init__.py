"""The base rate of a map: from random labels, a known rate, or assumed with a sensitivity band."""

from calibrank.anchoring._alternatives import Positives, PropensityModel
from calibrank.anchoring._population import transfer
from calibrank.anchoring._terms_of import count_columns
from calibrank.anchoring.activity import AssumedRate, assume_rate_from_activity, to_assumed_rate
from calibrank.anchoring.anchor import anchor
from calibrank.anchoring.known_rate import to_base_rate, undo_undersampling, with_sampling_range
from calibrank.anchoring.label_plan import (
    ExpectedError,
    Exploration,
    choose_pairs,
    labels_needed,
    plan_labels,
)
from calibrank.anchoring.position import list_ranks
from calibrank.anchoring.sensitivity import fit_with_sensitivity, with_sensitivity

__all__ = [
    "AssumedRate",
    "ExpectedError",
    "Exploration",
    "Positives",
    "PropensityModel",
    "anchor",
    "assume_rate_from_activity",
    "choose_pairs",
    "count_columns",
    "fit_with_sensitivity",
    "labels_needed",
    "list_ranks",
    "plan_labels",
    "to_assumed_rate",
    "to_base_rate",
    "transfer",
    "undo_undersampling",
    "with_sampling_range",
    "with_sensitivity",
]
