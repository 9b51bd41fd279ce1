"""Parametric calibration: families of scores per class, and baselines that use no labels."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibrank._internal.arguments import real
from calibrank._internal.blas import one_blas_thread
from calibrank._internal.logit import logit
from calibrank._internal.validation import Floats
from calibrank.composition import refusal
from calibrank.curves._logistic_fit import (
    ROUNDING,
    StandardizedDesign,
    as_curve,
    curve_without_errors,
    no_optimum,
    require_resolved,
)
from calibrank.curves.calibrator import Calibrator, Desiderata
from calibrank.curves.solver import Problem, solve
from calibrank.maps import Curve, LogisticCurve, RescaleCurve
from calibrank.maps.basis import Basis, Linear, Log, LogQuadratic, Quadratic, Softplus
from calibrank.maps.training import SMALLEST_RISE, require_spread
from calibrank.model import Model
from calibrank.summary import Summary
from calibrank.summary.pooling import two_points
from calibrank.terms import TermSpec

# OpenBLAS adds up 10,000 numbers and more on all cores: slower, and on a busy machine 20 times.
_ONE_THREAD_FROM = 8_192


class Parametric(Calibrator):
    """A calibrator that fits a logistic curve by exact minimization of the log loss."""

    @property
    @abstractmethod
    def basis(self) -> Basis:
        """The functions of the score that the log odds are a sum of."""

    def _fit(self, summary: Summary) -> tuple[LogisticCurve, dict[str, Any]]:
        # Loading what limits threads takes 10 ms: small fits do without it.
        summary = two_points(summary)
        limit = one_blas_thread() if len(summary) > _ONE_THREAD_FROM else nullcontext()
        with limit:
            problem, start, to_raw = self._problem(summary)
            solution = solve(problem, start)
            return as_curve(self.name, self.basis, summary, problem, solution, to_raw)

    @one_blas_thread()
    def _fit_curves(self, summaries: Sequence[Summary]) -> list[Curve]:
        curves: list[Curve] = []
        near: Floats = np.empty(0)
        for summary in map(two_points, summaries):
            problem, start, to_raw = self._problem(summary)
            is_near = len(near) == len(start)
            if is_near:
                start = np.maximum(near, problem.lower_bounds)
            near = solve(problem, start, is_near=is_near).point.solution
            curves.append(curve_without_errors(self.basis, summary, to_raw @ near))
        return curves

    def _problem(self, summary: Summary) -> tuple[Problem, Floats, Floats]:
        """The problem in standard units, where to start, and the matrix to raw coefficients."""
        design = StandardizedDesign.of(self.basis, summary)
        rate = float(summary.positive.sum() / summary.total.sum())
        # The intercept is unbounded; each generator gains at least SMALLEST_RISE over the range.
        bounds = np.concatenate([[-np.inf], SMALLEST_RISE / design.rises])
        problem = Problem(design.columns, summary.total, design.positive_sums, bounds, rate)
        return problem, np.concatenate([[logit(rate)], bounds[1:]]), design.to_raw


@dataclass(frozen=True, slots=True)
class Platt(Parametric):
    """Gaussian scores with equal variance in both classes: `b s + c` (Platt 1999; Eq. 6).

    Exponential scores in both classes give the same form (the paper's Appendix B). Desiderata: any
    score, increasing; not expressive (the log odds are linear).

    >>> fitted = Platt().fit([-1.0, 0.0, 1.0, 2.0], [0, 1, 0, 1])
    >>> fitted.predict([0.5]).round(3)
    array([0.5])
    """

    meets = Desiderata(any_score=True, increasing=True, expressive=False)

    @property
    def basis(self) -> Basis:
        return Linear()


@dataclass(frozen=True, slots=True)
class Gaussian(Parametric):
    """Gaussian scores with a separate variance per class: `a s^2 + b s + c` (Eq. 9). The default.

    An exponential negative and a Gaussian positive class give the same form with a <= 0. On a
    bounded range this can be increasing, although the paper's Appendix B says that it cannot.
    Desiderata: all three.

    >>> fitted = Gaussian().fit([-2.0, -1.0, 0.0, 1.0, 2.0, 3.0], [0, 0, 1, 0, 1, 1])
    >>> sorted(fitted.parameters)
    ['a', 'b', 'c']
    """

    meets = Desiderata(any_score=True, increasing=True, expressive=True)

    @property
    def basis(self) -> Basis:
        return Quadratic()


@dataclass(frozen=True, slots=True)
class Beta(Parametric):
    """Beta-distributed sigmoid(score) per class: `a log p - b log(1 - p) + c` (Kull et al. 2017).

    The sigmoid is built in, as in the paper, and computed without saturation, so every score is
    accepted. If your scores are probabilities, pass their logits. Desiderata: any score (the
    paper's: only [0, 1]), increasing, expressive; but the result depends on the scores' scale.

    >>> fitted = Beta().fit([-2.0, -1.0, 0.0, 1.0, 2.0, 3.0], [0, 0, 1, 0, 1, 1])
    >>> bool(fitted.predict(2.5) > fitted.predict(-1.5))
    True
    """

    meets = Desiderata(any_score=True, increasing=True, expressive=True)

    @property
    def basis(self) -> Basis:
        return Softplus()


@dataclass(frozen=True, slots=True)
class Gamma(Parametric):
    """Gamma-distributed scores per class: `a log(s - start) + b (s - start) + c` (Eq. 12).

    For skewed scores. The paper starts at the lowest score, where the logarithm is infinite; here
    `start` lies `margin` times the score range below it, so the scale of the scores does not
    matter. Desiderata: all three.

    >>> fitted = Gamma().fit([0.1, 0.5, 1.0, 2.0, 4.0, 8.0], [0, 0, 1, 0, 1, 1])
    >>> sorted(fitted.parameters)
    ['a', 'b', 'c']
    """

    meets = Desiderata(any_score=True, increasing=True, expressive=True)
    margin: float = 0.01

    def __post_init__(self) -> None:
        object.__setattr__(self, "margin", _checked_margin(self.margin))

    @property
    def basis(self) -> Basis:
        return Log(self.margin)


@dataclass(frozen=True, slots=True)
class GammaGaussian(Parametric):
    """Gamma negatives and Gaussian positives: `a s^2 + b s + b' log s + c` with a <= 0 (Eq. 22).

    The paper drops this family because it found no linear monotonicity constraint; on a bounded
    score range two linear constraints suffice. `margin` is as in `Gamma`, which is a special case.
    Desiderata: all three.

    >>> fitted = GammaGaussian().fit([0.1, 0.5, 1.0, 2.0, 4.0, 8.0], [0, 0, 1, 0, 1, 1])
    >>> sorted(fitted.parameters)
    ['a', 'b', "b'", 'c']
    """

    meets = Desiderata(any_score=True, increasing=True, expressive=True)
    margin: float = 0.01

    def __post_init__(self) -> None:
        object.__setattr__(self, "margin", _checked_margin(self.margin))

    @property
    def basis(self) -> Basis:
        return LogQuadratic(self.margin)


@dataclass(frozen=True, slots=True)
class Temperature(Parametric):
    """Temperature scaling: `s / T`, with even odds fixed at score 0 (Guo et al. 2017).

    For scores that are logits already, which ranking scores seldom are. Desiderata: any score,
    increasing; not expressive.

    >>> fitted = Temperature().fit([-2.0, -1.0, 1.0, 2.0], [0, 1, 0, 1])
    >>> fitted.predict([0.0])
    array([0.5])
    """

    meets = Desiderata(any_score=True, increasing=True, expressive=False)

    @property
    def basis(self) -> Basis:
        return Linear()

    def _problem(self, summary: Summary) -> tuple[Problem, Floats, Floats]:
        scores = summary.scores
        # As T goes to 0 the loss grows by `growth` / T: without growth it has no minimum.
        growth = summary.total @ np.maximum(scores, 0) - summary.positive @ scores
        if growth <= ROUNDING * (summary.total @ np.abs(scores)):
            where = "above score 0 wherever possible, so the best T is 0"
            raise no_optimum(summary, where)
        # There is no intercept: scores are scaled by their root mean square and not centred.
        size = np.sqrt(summary.total @ scores**2 / summary.total.sum())
        require_resolved(self.basis, summary, scores[None], np.array([size]))
        width = summary.high - summary.low
        bounds = np.array([SMALLEST_RISE * size / width])
        positive_moment = summary.positive @ summary.positive_scores
        positive_sums = np.array([positive_moment]) / size
        rate = float(summary.positive.sum() / summary.total.sum())
        design = scores[None] / size
        problem = Problem(design, summary.total, positive_sums, bounds, rate)
        # s / T as intercept and slope of the linear basis (s - low) / width.
        to_raw = np.array([[summary.low], [width]]) / size
        return problem, bounds, to_raw


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


def _checked_margin(margin: float) -> float:
    return real("margin", margin, "[1e-6, 1e6]", "It is a multiple of the score range.")
