"""The area under the ROC curve: of all rows, and as the mean over users."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from calibrank._internal.validation import Floats, Ids, Indices, Numbers, add_up, score_column
from calibrank.evidence import Evidence
from calibrank.metrics.metric import Additive, Better
from calibrank.metrics.ranking import PerUser, UserMean


@dataclass(frozen=True, slots=True)
class AUC(Additive):
    """The chance that a positive is given a higher value than a negative; ties count half.

    Pairs are weighted by positive mass times negative mass (total minus positive). Only the
    order counts, so raw scores do as well as probabilities.

    >>> AUC()([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1])
    0.75
    """

    better: ClassVar[Better] = Better.HIGHER
    explanation: ClassVar[str] = (
        "Area under the ROC curve: the chance that a liked item is given a higher probability "
        "than another one. Calibration by an increasing map does not change it."
    )
    maximum: ClassVar[float] = 1.0
    needs_labels: ClassVar[str] = "both classes"
    has_fixed_bins: ClassVar[bool] = False

    def check(self, probabilities: Numbers) -> Floats:
        return score_column(probabilities, "probabilities")[0]

    def bin_indices(self, probabilities: Floats, evidence: Evidence) -> Indices:
        # One bin per distinct value, in increasing order.
        return np.unique(probabilities, return_inverse=True)[1]

    def terms(self, probabilities: Floats, evidence: Evidence) -> Floats:
        return np.array([evidence.positive, evidence.total])

    def compute(self, sums: Floats) -> float:
        positive, total = sums
        one_list = np.zeros(len(total), dtype=np.intp)
        return float(_areas(positive, total - positive, one_list)[0])


@dataclass(frozen=True, slots=True)
class GAUC(UserMean):
    """AUC of each user's list, averaged over users by their number of rows (grouped AUC).

    Users without both classes have no AUC: they are left out, with their rows. `users` may be
    any groups, such as queries.

    >>> GAUC()([0.1, 0.4, 0.8, 0.3, 0.2], [0, 1, 0, 1, 0], users=[1, 1, 1, 2, 2])
    0.7
    """

    explanation: ClassVar[str] = (
        "Grouped AUC: the chance that a liked item of a user is given a higher probability than "
        "another item of the same user, averaged over users by their number of rows. Users "
        "without both classes are left out."
    )
    needs_labels: ClassVar[str] = "both classes for some user"

    def per_user(self, probabilities: Floats, evidence: Evidence, users: Ids) -> PerUser:
        codes = np.unique(users, return_inverse=True)[1]
        ranks = np.unique(probabilities, return_inverse=True)[1]
        # One cell per user and value, in increasing order of the value within each user.
        n_ranks = int(ranks.max()) + 1
        cells, places = np.unique(codes * n_ranks + ranks, return_inverse=True)
        positive = add_up(places, evidence.positive)
        negative = add_up(places, evidence.total - evidence.positive)
        lists = cells // n_ranks
        areas = _areas(positive, negative, lists)
        # Inverse-propensity weights can push the negative mass of a short list below 0.
        has_both = (add_up(lists, positive) > 0) & (add_up(lists, negative) > 0)
        defined = np.flatnonzero(has_both)
        return PerUser(defined, areas[defined], add_up(codes, evidence.total)[defined])


def _areas(positive: Floats, negative: Floats, lists: Indices) -> Floats:
    """The AUC of each list of increasing values; NaN where a class has no mass."""
    positives = add_up(lists, positive)
    negatives = add_up(lists, negative)
    before = np.cumsum(negatives) - negatives
    below = np.cumsum(negative) - negative / 2 - before[lists]
    areas = np.full(len(positives), np.nan)
    pairs = positives * negatives
    return np.divide(add_up(lists, positive * below), pairs, out=areas, where=pairs != 0)
