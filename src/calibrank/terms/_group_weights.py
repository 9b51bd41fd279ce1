"""How much a large group may count where groups differ: less than in proportion to its rows."""

from __future__ import annotations

import numpy as np

from calibrank._internal.validation import Floats

# Caps that are averaged, evenly spaced on a log scale, from the largest mass to a multiple of the
# mean. Lower ones would give most weight to small groups, whose rates may be others altogether.
_CAPS = 64
_LEAST_CAP = 2.0


def capped_masses(positive: Floats, total: Floats) -> Floats:
    """The mass that each group counts with, at most its own.

    Rows of one group are alike, so a rate over few large groups varies as if there were few rows.
    Capping their mass lowers that variance, and moves the rate where large groups have another. As
    in the trimming of survey weights (Potter 1990), the error of a cap is the sum of the two:
    squared change of the rate + its variance between groups. Caps are averaged by their errors.
    With more and more groups the variance vanishes, and with it caps that change the rate.
    """
    present = total > 0
    masses = total[present]
    rates = positive[present] / masses
    shares = masses / masses.sum()
    rate = float(shares @ rates)
    # For groups of equal variance, the weighted squares are short by the factor 1 - sum of squares.
    spread = float(shares @ (rates - rate) ** 2) / max(1 - float(shares @ shares), 1e-9)
    highest = float(masses.max())
    least = min(_LEAST_CAP * float(masses.mean()), highest)
    caps = np.geomspace(highest, least, _CAPS)
    weights = np.array([np.minimum(masses, cap) for cap in caps.tolist()])
    weights /= weights.sum(axis=1, keepdims=True)
    errors = (weights @ rates - rate) ** 2 + spread * (weights**2).sum(axis=1)
    averaged = np.exp(-errors / (2 * max(float(errors.min()), 1e-300))) @ weights
    factors = averaged / shares
    capped = np.zeros_like(total)
    # Relative to the group that loses least: rows that count fully count once.
    capped[present] = masses * factors / factors.max()
    return capped
