"""Propensity estimators: the probability that the label of a user-item pair was observed."""

from calibrank.propensity.estimators import (
    ByRating,
    Exposure,
    FittedPropensity,
    Known,
    NaiveBayes,
    Popularity,
    Propensity,
    Random,
    Uniform,
)
from calibrank.propensity.logistic import Logistic
from calibrank.propensity.position import Position, estimate_position

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
    "estimate_position",
]
