"""Whether a map at a known base rate is expected to be worse than that rate for every pair.

A known rate sets the level of a map and not its slope, and biased logs often overstate the slope:
what was shown and chosen had high scores. If the truth has the map's shape but a slope beta times
the map's, the gain in log loss over the constant increases with beta, and is 0 at about 1/2. So a
map is expected to be worse than the constant if its log odds vary about twice as much as those of
rankers do where pairs are shown at random.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np

from calibrank._internal.logit import expit
from calibrank._internal.validation import Floats
from calibrank.anchoring.shift import shift_for
from calibrank.errors import WorseThanConstantWarning
from calibrank.maps import FitRecord

TYPICAL_SPREAD = 0.45
"""Standard deviation of true log odds given the score, where pairs are shown at random.

Over 19 rankers on randomly exposed labels of Coat and KuaiRec it is 0.2 to 1.05, with a median of
0.48. At 0.45 the warning is given for 19 of these rankers' 38 maps (Platt and Gaussian, moved over
their log): 11 of these 19 are worse than the constant, and 3 of the other 19.
It was chosen among 0.40, 0.45 and 0.50 on these same maps, so the counts are no independent test.
"""


def is_slope_assumed(record: FitRecord) -> bool:
    """Whether a map's slope rests on assumed propensities.

    Labels used as they are, and impressions, are treated as unbiased: only their level is off.
    """
    return record.evidence in {"ips", "positive_ips"}


class ConstantCheck(NamedTuple):
    """A map's expected log loss at its base rate, compared with that of the constant."""

    rate: float
    spread: float
    """Standard deviation of the map's log odds over the population."""
    expected_gain: float
    """In log loss over the constant, if the true log odds have at most the typical spread."""

    @property
    def is_worse(self) -> bool:
        return self.expected_gain < 0

    @property
    def message(self) -> str:
        return (
            f"at the base rate {self.rate:.2%} the map is expected to be worse than predicting "
            f"that rate for every pair: its log odds have a standard deviation of "
            f"{self.spread:.2f}, and if the true ones have {TYPICAL_SPREAD}, as is typical of "
            f"randomly shown pairs, its log loss is {-self.expected_gain:.4f} higher. This is a "
            "guess: of 19 maps of real rankers that it was said of, 11 were worse. Anchor on "
            "random labels, or give the rate among the top tenth of scores too (top_rate, in "
            "Python)."
        )

    def warn(self, stacklevel: int = 2) -> None:
        """Warn if the map is expected to be worse than the constant."""
        if self.is_worse:
            warnings.warn(self.message, WorseThanConstantWarning, stacklevel=stacklevel + 1)


def check_against_constant(log_odds: Floats, mass: Floats, rate: float) -> ConstantCheck:
    """Check log odds over a population, whose mass sums to 1, at a known base rate.

    >>> steep, flat = np.array([-4.0, -1.0]), np.array([-2.3, -2.0])
    >>> mass = np.array([0.5, 0.5])
    >>> check_against_constant(steep, mass, 0.14).is_worse
    True
    >>> check_against_constant(flat, mass, 0.11).is_worse
    False
    """
    spread = float(np.sqrt(mass @ (log_odds - mass @ log_odds) ** 2))
    slope = min(1.0, TYPICAL_SPREAD / max(spread, 1e-300))
    truth = expit(slope * log_odds + shift_for(slope * log_odds, mass, rate))
    # log(1 + e^x) without overflow; the log loss of the log odds x is that minus x times the truth.
    map_loss = float(mass @ (np.logaddexp(0, log_odds) - truth * log_odds))
    constant_loss = -float(rate * np.log(rate) + (1 - rate) * np.log1p(-rate))
    return ConstantCheck(rate, spread, constant_loss - map_loss)
