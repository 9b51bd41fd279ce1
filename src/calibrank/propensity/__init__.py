"""Propensity estimators: how likely a pair was to be observed at all."""

from calibrank.propensity.known import Known
from calibrank.propensity.logistic import Logistic
from calibrank.propensity.naive_bayes import NaiveBayes
from calibrank.propensity.popularity import Popularity, Random, Uniform
from calibrank.propensity.propensity import FittedPropensity, Propensity

__all__ = [
    "FittedPropensity",
    "Known",
    "Logistic",
    "NaiveBayes",
    "Popularity",
    "Propensity",
    "Random",
    "Uniform",
]
