"""Uncalibrated baselines: what people do when they only want numbers between 0 and 1."""

from dataclasses import dataclass
from typing import ClassVar

from calibrank.calibrators.calibrator import Calibrator, Desiderata, record_of, require_spread
from calibrank.maps import LogisticMap, RescaleMap
from calibrank.maps.basis import Linear
from calibrank.summary import Summary


@dataclass(frozen=True, slots=True)
class MinMax(Calibrator):
    """The lowest score becomes 0, the highest 1. A baseline: labels are not looked at.

    Desiderata: any score (clipped beyond the range), increasing; not expressive.

    >>> MinMax().fit([2.0, 3.0, 6.0], [0, 0, 1]).predict([3.0])
    array([0.25])
    """

    meets: ClassVar[Desiderata] = Desiderata(any_score=True, increasing=True, expressive=False)
    learns: ClassVar[bool] = False

    def _fit(self, summary: Summary) -> RescaleMap:
        require_spread(summary)
        return RescaleMap(self.name, summary.low, summary.high, record_of(summary))


@dataclass(frozen=True, slots=True)
class Sigmoid(Calibrator):
    """The sigmoid of the raw score. A baseline: labels are not looked at.

    Desiderata: any score, increasing; not expressive.

    >>> Sigmoid().fit([2.0, 3.0, 6.0], [0, 0, 1]).predict([0.0])
    array([0.5])
    """

    meets: ClassVar[Desiderata] = Desiderata(any_score=True, increasing=True, expressive=False)
    learns: ClassVar[bool] = False

    def _fit(self, summary: Summary) -> LogisticMap:
        nothing = ((0.0, 0.0), (0.0, 0.0))
        return LogisticMap(self.name, Linear(), 0.0, 1.0, 0.0, (1.0,), nothing, record_of(summary))
