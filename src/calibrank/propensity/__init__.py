"""Propensity estimators: the probability that the label of a user-item pair was observed."""

from calibrank.propensity.bias import propensity_bias
from calibrank.propensity.exposure import Exposure, effective_rows
from calibrank.propensity.known import Known
from calibrank.propensity.logistic import Logistic
from calibrank.propensity.naive_bayes import ByRating, NaiveBayes
from calibrank.propensity.popularity import Popularity, count_positives
from calibrank.propensity.position import Position, estimate_position
from calibrank.propensity.propensity import FittedPropensity, Propensity
from calibrank.propensity.reference import Random, Uniform

__all__ = [
    "ByRating",
    "Exposure",
    "FittedPropensity",
    "Known",
    "Logistic",
    "NaiveBayes",
    "Popularity",
    "Position",
    "Propensity",
    "Random",
    "Uniform",
    "count_positives",
    "effective_rows",
    "estimate_position",
    "propensity_bias",
]
