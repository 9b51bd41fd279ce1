"""How far the inverse-propensity risk is off if propensities are wrong."""

from __future__ import annotations

import numpy as np

from calibrank._internal.logit import logit
from calibrank._internal.validation import (
    Floats,
    Numbers,
    column,
    floats,
    probability_column,
    require,
)
from calibrank.evidence import Labels, nonzero_evidence


def propensity_bias(probabilities: Numbers, labels: Labels, factor: Numbers) -> float:
    """The bias of the UERM risk if true propensities are the given ones times `factor`.

    Proposition 2 of the paper, with the sign of its proof: the mean of rho (w / w' - 1) log((1 - g)
    / g), where w' are the given propensities, w the true ones, g the `probabilities` and rho the
    unknown preference. Pass the evidence of `ips` as `labels`: its positive mass Y / w' has the
    expectation rho w / w', which leaves (1 - 1 / factor) Y / w' log((1 - g) / g). `factor` is one
    number, or one per row. A positive bias means that the risk looks larger than it is.

    >>> from calibrank import ips
    >>> evidence = ips([1, 0, 0, 0], [0.5, 0.5, 0.5, 0.5])
    >>> round(propensity_bias([0.4, 0.3, 0.2, 0.1], evidence, factor=2), 4)
    0.1014
    >>> propensity_bias([0.4, 0.3, 0.2, 0.1], evidence, factor=1)
    0.0
    """
    predicted = probability_column(probabilities)
    evidence = nonzero_evidence(labels, len(predicted))
    positive = evidence.positive
    weight = (1 - 1 / _factor(factor, len(predicted))) * positive
    # Rows of weight 0 do not count, even if their prediction is 0 or 1.
    counts = weight != 0
    require(
        lambda values: (values > 0) & (values < 1),
        "probabilities",
        "lie strictly between 0 and 1 where a label is positive",
        np.where(counts, predicted, 0.5),
        "The risk there is infinite: predict with a map that is not certain.",
    )
    negative_log_odds = -logit(predicted[counts])
    return float(weight[counts] @ negative_log_odds / evidence.total.sum())


def _factor(factor: Numbers, rows: int) -> Floats:
    values = floats("factor", factor)
    if values.ndim:
        values = column("factor", factor, rows)
    require(
        lambda given: (given > 0) & (given < np.inf),
        "factor",
        "be finite and above 0",
        values,
        "It is the true propensity divided by the given one.",
    )
    return values
