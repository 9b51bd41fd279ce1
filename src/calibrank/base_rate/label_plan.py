"""What random labels would buy: worlds the log is compatible with are made, labels drawn in them, and maps anchored."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from calibrank._logit import expit
from calibrank._validation import Floats, Numbers, score_column
from calibrank.base_rate.anchor import anchor
from calibrank.errors import DataError
from calibrank.maps import CalibrationMap

SIZES = (0, 30, 100, 300, 1_000, 3_000)
_POPULATION = 2_000
_HIGHEST = 3.0  # log odds of a truth: where the band reaches 1 that is a bound, not a belief


class ExpectedError(NamedTuple):
    """The error to expect with that many labels of randomly shown pairs."""

    labels: int
    error: float
    """Mean distance of predicted from true probabilities: what ECE measures, without bins."""


def plan_labels(
    fitted: CalibrationMap,
    population: Numbers,
    sizes: Sequence[int] = SIZES,
    draws: int = 10,
    seed: int = 0,
) -> list[ExpectedError]:
    """How the expected error falls with the number of random labels, from the data at hand.

    Truths are drawn from the map's sensitivity band, so the fit must carry one (`fit_with_sensitivity`).
    `population` are scores of the pairs that probabilities are wanted for.

    >>> from calibrank import Platt, fit_with_sensitivity
    >>> rng = np.random.default_rng(0)
    >>> scores, exposure = rng.normal(size=2000), rng.uniform(0.2, 1, 2000)
    >>> labels = rng.random(2000) < exposure * 0.3 / (1 + np.exp(-scores))
    >>> fitted = fit_with_sensitivity(Platt(), scores, labels, exposure)
    >>> without, few = plan_labels(fitted, scores, sizes=(0, 300), draws=5)
    >>> few.error < without.error
    True
    """
    band = fitted.record.sensitivity
    if band is None:
        raise DataError(
            f"the map to plan for must carry a sensitivity band, got a {fitted.method} without. "
            "Use fit_with_sensitivity."
        )
    if draws < 1 or min(sizes, default=0) < 0:
        raise DataError(
            f"a plan must have one draw or more and no negative size, got {draws} and {tuple(sizes)}."
        )
    rng = np.random.default_rng(seed)
    scores = score_column(population)[0].astype(np.float64)
    scores = scores[:: max(1, len(scores) // _POPULATION)]
    low, high = (
        np.interp(scores, band.scores, np.minimum(end, _HIGHEST)) for end in (band.low, band.high)
    )
    # A truth for each draw, the same for all sizes: from the band's lower end to its upper end.
    places = (np.arange(draws) + 0.5) / draws
    truths = [expit(low + place * (high - low)) for place in places]
    return [
        ExpectedError(
            size, float(np.mean([_error(fitted, scores, truth, size, rng) for truth in truths]))
        )
        for size in sizes
    ]


def _error(
    fitted: CalibrationMap, scores: Floats, truth: Floats, size: int, rng: np.random.Generator
) -> float:
    known = fitted
    if size:
        shown = rng.integers(len(scores), size=size)
        liked = (rng.random(size) < truth[shown]).astype(np.float64)
        known = anchor(fitted, scores[shown], liked, population=scores)
    return float(np.abs(known.predict(scores) - truth).mean())
