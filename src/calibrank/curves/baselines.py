"""Uncalibrated baselines: common ways to squeeze scores into [0, 1] without using labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from calibrank.composition import refusal
from calibrank.curves.calibrator import Calibrator, Desiderata
from calibrank.maps import LogisticCurve, RescaleCurve
from calibrank.maps.basis import Linear
from calibrank.maps.training import require_spread
from calibrank.model import Model
from calibrank.summary import Summary
from calibrank.terms import TermSpec


@dataclass(frozen=True, slots=True)
class MinMax(Calibrator):
    """Rescale linearly so that the lowest score becomes 0 and the highest 1; ignores the labels.

    Desiderata: any score (clipped outside the range), increasing; not expressive.

    >>> MinMax().fit([2.0, 3.0, 6.0], [0, 0, 1]).predict([3.0])
    array([0.25])
    """

    meets = Desiderata(any_score=True, increasing=True, expressive=False)
    learns = False

    def __add__(self, term: TermSpec) -> Model:
        raise refusal("MinMax", "terms, another base rate")

    def _fit(self, summary: Summary) -> tuple[RescaleCurve, dict[str, Any]]:
        require_spread(summary)
        return RescaleCurve(summary.low, summary.high), {}


@dataclass(frozen=True, slots=True)
class Sigmoid(Calibrator):
    """The sigmoid of the raw score; ignores the labels.

    Desiderata: any score, increasing; not expressive.

    >>> Sigmoid().fit([2.0, 3.0, 6.0], [0, 0, 1]).predict([0.0])
    array([0.5])
    """

    meets = Desiderata(any_score=True, increasing=True, expressive=False)
    learns = False

    def _fit(self, summary: Summary) -> tuple[LogisticCurve, dict[str, Any]]:
        # On the range from 0 to 1 the linear basis is the score itself.
        low, high = 0.0, 1.0
        intercept, slope = 0.0, 1.0
        # Nothing is estimated, so there is no sampling error.
        covariance = ((0.0, 0.0), (0.0, 0.0))
        return LogisticCurve(Linear(), low, high, intercept, (slope,), covariance), {}
