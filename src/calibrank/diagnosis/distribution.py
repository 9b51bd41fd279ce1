"""The distribution of scores and labels in a summary."""

import numpy as np

from calibrank._internal.validation import Floats, add_up
from calibrank.summary import Summary

_DECILES = 10


def label_deciles(summary: Summary) -> list[tuple[float, float]]:
    """Mean score and mean weighted label in each tenth of the mass, in order of scores."""
    mass = summary.total
    # Where the middle of each row's mass lies, from 0 to 1.
    position = (np.cumsum(mass) - mass / 2) / mass.sum()
    decile = np.minimum((position * _DECILES).astype(np.intp), _DECILES - 1)
    total = add_up(decile, mass, _DECILES)
    positive = add_up(decile, summary.positive, _DECILES)
    moment = add_up(decile, mass * summary.scores, _DECILES)
    occupied = total > 0
    scores = moment[occupied] / total[occupied]
    rates = positive[occupied] / total[occupied]
    return list(zip(scores.tolist(), rates.tolist(), strict=True))


def auc(summary: Summary) -> tuple[float, float]:
    """The probability that a positive scores above a negative, and its standard error.

    The standard error is an upper bound (Hanley and McNeil, 1982): the variance of the AUC is at
    most AUC (1 - AUC) / m, and hence 1 / (4 m), with m the mass of the smaller class.
    """
    positive = summary.positive
    negative = summary.total - summary.positive
    # Ties count one half.
    negative_below = np.cumsum(negative) - negative / 2
    pairs = max(float(positive.sum() * negative.sum()), 1e-300)
    area = float(positive @ negative_below) / pairs
    smaller_class = max(min(positive.sum(), negative.sum()), 1.0)
    return area, 0.5 / smaller_class**0.5


def score_quantiles(summary: Summary, count: int) -> Floats:
    """`count` evenly spaced quantiles of the scores: a sample that represents all of them."""
    cumulative = np.cumsum(summary.total) / summary.total.sum()
    levels = (np.arange(count) + 0.5) / count
    # Rounding may leave the last value just below 1.
    rows = np.searchsorted(cumulative, levels).clip(max=len(cumulative) - 1)
    return summary.scores[rows]
