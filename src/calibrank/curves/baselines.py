"""Uncalibrated baselines: common ways to squeeze scores into [0, 1] without using labels."""

from __future__ import annotations

from dataclasses import dataclass

from calibrank.curves.calibrator import (
    Calibrator,
    Desiderata,
    record_of,
    require_spread,
)
from calibrank.maps import LogisticMap, RescaleMap
from calibrank.maps.basis import Linear
from calibrank.summary import Summary


@dataclass(frozen=True, slots=True)
class MinMax(Calibrator):
    """Rescale linearly so that the lowest score becomes 0 and the highest 1; ignores the labels.

    Desiderata: any score (clipped outside the range), increasing; not expressive.

    >>> MinMax().fit([2.0, 3.0, 6.0], [0, 0, 1]).predict([3.0])
    array([0.25])
    """

    meets = Desiderata(any_score=True, increasing=True, expressive=False)
    learns = False

    def _fit(self, summary: Summary) -> RescaleMap:
        require_spread(summary)
        return RescaleMap(self.name, summary.low, summary.high, record_of(summary))


@dataclass(frozen=True, slots=True)
class Sigmoid(Calibrator):
    """The sigmoid of the raw score; ignores the labels.

    Desiderata: any score, increasing; not expressive.

    >>> Sigmoid().fit([2.0, 3.0, 6.0], [0, 0, 1]).predict([0.0])
    array([0.5])
    """

    meets = Desiderata(any_score=True, increasing=True, expressive=False)
    learns = False

    def _fit(self, summary: Summary) -> LogisticMap:
        # On the range from 0 to 1 the linear basis is the score itself.
        low, high = 0.0, 1.0
        intercept, slope = 0.0, 1.0
        # Nothing is estimated, so there is no sampling error.
        covariance = ((0.0, 0.0), (0.0, 0.0))
        return LogisticMap(
            self.name,
            Linear(),
            low,
            high,
            intercept,
            (slope,),
            covariance,
            record_of(summary),
        )
