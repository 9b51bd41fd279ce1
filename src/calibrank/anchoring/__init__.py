"""The base rate of a map: from random labels, a known rate, or assumed with a sensitivity band."""

from calibrank.anchoring.activity import AssumedRate, assume_rate_from_activity, to_assumed_rate
from calibrank.anchoring.anchor import anchor
from calibrank.anchoring.count_columns import count_columns
from calibrank.anchoring.exploration import Exploration, choose_pairs
from calibrank.anchoring.known_rate import compare_with_constant, to_base_rate, undo_undersampling
from calibrank.anchoring.label_plan import ExpectedError, labels_needed, plan_labels
from calibrank.anchoring.position import choose_top_pairs, list_ranks
from calibrank.anchoring.propensity_model import Positives, PropensityModel
from calibrank.anchoring.sampling import with_sampling_range
from calibrank.anchoring.sensitivity import fit_with_sensitivity, with_sensitivity
from calibrank.anchoring.transfer import transfer

__all__ = [
    "AssumedRate",
    "ExpectedError",
    "Exploration",
    "Positives",
    "PropensityModel",
    "anchor",
    "assume_rate_from_activity",
    "choose_pairs",
    "choose_top_pairs",
    "compare_with_constant",
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
