"""What a biased log leaves undetermined: the range of base rates under several assumptions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from calibrank._internal.logit import expit
from calibrank._internal.validation import Floats
from calibrank.maps.checks import require, require_one_of

# The condition under which a range of base rates holds.
ASSUMPTIONS = {
    "item popularity": "exposure depends only on item popularity",
    "relative propensities": "the propensities are right up to a factor and a power",
    "logged propensities": "the logged propensities are right",
}
"""What a sensitivity analysis can assume about exposure; only the last one fixes its scale."""

# So few labels of random pairs can be had anywhere: a range that is wider than theirs is no answer.
_FEW_LABELS = 30
# The number of random labels that a range of base rates is compared with.
_LABELS = 300


@dataclass(frozen=True, slots=True)
class Alternative:
    """One propensity model of a sensitivity analysis, and the mean preference under it."""

    name: str
    rate: float
    """Mean preference over all rows."""
    top_rate: float | None
    """Mean preference over the tenth with the highest scores; None without a finite fit."""


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """What a biased log leaves undetermined: a range of base rates and a band of log odds."""

    low_rate: float
    high_rate: float
    alternatives: tuple[Alternative, ...]
    scores: tuple[float, ...]
    """Scores at which the band is known."""
    low: tuple[float, ...]
    """Lower ends of the band, in log odds."""
    high: tuple[float, ...]
    assumption: str = "relative propensities"
    """What exposure is assumed to depend on; one of `ASSUMPTIONS`."""
    exposure_factor: float = 1.0
    """By which factor exposure may deviate from the assumption, through users and preference."""

    def __post_init__(self) -> None:
        name, lengths = "a sensitivity band", {len(self.scores), len(self.low), len(self.high)}
        rule = "have one lower and one upper end per score, for two or more scores"
        is_full = len(lengths) == 1 and len(self.scores) >= 2
        require(is_full, name, rule, f"lengths {sorted(lengths)}")
        is_below = all(low <= high for low, high in zip(self.low, self.high, strict=True))
        rule = "have increasing scores, and no lower end above the upper one"
        require(is_below and list(self.scores) == sorted(self.scores), name, rule)
        low, high = self.low_rate, self.high_rate
        is_range = 0 <= low <= high <= 1
        require(is_range, "base rates", "be increasing within [0, 1]", f"{low} to {high}")
        require_one_of("assumption", self.assumption, ASSUMPTIONS)
        factor = self.exposure_factor
        require(1 <= factor < np.inf, "exposure_factor", "be finite and 1 or more", factor)

    @property
    def is_informative(self) -> bool:
        """Whether the range of base rates is narrower than a few random labels would leave it."""
        middle = (self.low_rate + self.high_rate) / 2
        return self.high_rate - self.low_rate < 2 * _margin(middle, _FEW_LABELS)

    def moved(self, change: Floats) -> Self:
        """With log odds that are changed at each of its scores."""
        low, high = [tuple((np.array(end) + change).tolist()) for end in (self.low, self.high)]
        return replace(self, low=low, high=high)

    def ends(self, scores: Floats) -> tuple[Floats, Floats]:
        """Lower and upper probabilities of the band, constant beyond its first and last score."""
        low = np.interp(scores, self.scores, self.low)
        high = np.interp(scores, self.scores, self.high)
        return expit(low), expit(high)

    @property
    def description(self) -> str:
        """The range of base rates with its assumption, or that the log cannot tell the rate.

        Empty if the range is a single rate.

        >>> rates = {"alternatives": (), "low_rate": 0.1, "high_rate": 0.2}
        >>> band = {"scores": (0.0, 1.0), "low": (-1.0, 0.0), "high": (0.0, 1.0)}
        >>> Sensitivity(**rates, **band, assumption="logged propensities").description[:78]
        'If the logged propensities are right, the base rate lies between 10.00% and 20'
        """
        low = f"{self.low_rate:.2%}"
        high = f"{self.high_rate:.2%}"
        # A known rate leaves no range: every alternative is shifted to that rate.
        if low == high:
            return ""
        condition, factor = ASSUMPTIONS[self.assumption], self.exposure_factor
        if factor != 1:
            condition += f", give or take a factor of {factor:g} for users and preference"
        if self.assumption == "logged propensities" or self.is_informative:
            return (
                f"If {condition}, the base rate lies between {low} and {high}. "
                "Exposure that depends on users or preference in other ways can put it outside."
            )
        margin = _margin(min(self.high_rate, 0.5), _LABELS)
        return (
            f"If the rows and weights stand for all pairs, at least {low} are liked. "
            f"This log cannot tell how many more: up to {high} if {condition}. "
            f"{_LABELS} labels of randomly shown pairs would determine it to within "
            f"{100 * margin:.0f} percentage points."
        )


def _margin(rate: float, labels: int) -> float:
    """Half the width of the 95% interval of a rate that is estimated from random labels."""
    return float(1.96 * np.sqrt(rate * (1 - rate) / labels))
