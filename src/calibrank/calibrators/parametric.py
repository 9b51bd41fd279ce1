"""Parametric calibration: class-conditional score families whose posteriors are logistic."""

import warnings
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from calibrank._logit import logit
from calibrank._validation import Floats
from calibrank.calibrators.calibrator import Calibrator, Desiderata, record_of
from calibrank.calibrators.solver import Problem, Solution, solve
from calibrank.errors import DataError, FitError, FlatMapWarning
from calibrank.maps import LogisticMap
from calibrank.maps.basis import Basis, Linear, Log, LogQuadratic, NumpyOps, Quadratic, Softplus
from calibrank.summary import Summary

SMALLEST_RISE = 1e-6
"""Log odds that each generator gains over the fitted range at least: strictly increasing, yet as good as flat."""

_ROUNDING = 1e-12


class Parametric(Calibrator):
    """Fits a logistic map by exact minimisation of the log loss."""

    @property
    @abstractmethod
    def basis(self) -> Basis:
        """The shape of the log odds."""

    def _fit(self, summary: Summary) -> LogisticMap:
        frame = _Frame.of(self.basis, summary)
        rate = float(summary.positive.sum() / summary.total.sum())
        floors = np.concatenate([[-np.inf], SMALLEST_RISE / frame.rises])
        problem = Problem(frame.design, summary.total, frame.pull, floors, rate)
        solution = solve(problem, np.concatenate([[logit(rate)], floors[1:]]))
        return _as_map(self.name, self.basis, summary, problem, solution, frame.to_raw)


@dataclass(frozen=True, slots=True)
class Platt(Parametric):
    """Equal-variance Gaussian scores in both classes: `b s + c` (Platt 1999; Eq. 6).

    Two exponential score distributions give the very same form (the paper's Appendix B), so this is theirs too.
    Desiderata: any score, increasing; not expressive (log odds are a straight line).

    >>> fitted = Platt().fit([-1.0, 0.0, 1.0, 2.0], [0, 1, 0, 1])
    >>> fitted.predict([0.5]).round(3)
    array([0.5])
    """

    meets: ClassVar[Desiderata] = Desiderata(any_score=True, increasing=True, expressive=False)

    @property
    def basis(self) -> Basis:
        return Linear()


@dataclass(frozen=True, slots=True)
class Gaussian(Parametric):
    """Gaussian scores with a variance of their own in each class: `a s^2 + b s + c` (Eq. 9). The default choice.

    An exponential negative and a Gaussian positive class give the same form with a <= 0, which *is* increasing on a
    bounded range (the paper's Appendix B says it cannot be). Desiderata: all three.

    >>> fitted = Gaussian().fit([-2.0, -1.0, 0.0, 1.0, 2.0, 3.0], [0, 0, 1, 0, 1, 1])
    >>> sorted(fitted.parameters)
    ['a', 'b', 'c']
    """

    meets: ClassVar[Desiderata] = Desiderata(any_score=True, increasing=True, expressive=True)

    @property
    def basis(self) -> Basis:
        return Quadratic()


@dataclass(frozen=True, slots=True)
class Beta(Parametric):
    """Beta distributions of sigmoid(score) in each class: `a log p - b log(1 - p) + c` (Kull et al. 2017).

    The sigmoid is built in, as in the paper, but without its saturation, so any score is taken. If your scores
    already are probabilities, pass their logits. Desiderata: any score (the paper's: only [0, 1]), increasing,
    expressive, but tied to the raw scale of the scores.

    >>> fitted = Beta().fit([-2.0, -1.0, 0.0, 1.0, 2.0, 3.0], [0, 0, 1, 0, 1, 1])
    >>> bool(fitted.predict(2.5) > fitted.predict(-1.5))
    True
    """

    meets: ClassVar[Desiderata] = Desiderata(any_score=True, increasing=True, expressive=True)

    @property
    def basis(self) -> Basis:
        return Softplus()


@dataclass(frozen=True, slots=True)
class Gamma(Parametric):
    """Gamma scores in each class: `a log(s - start) + b (s - start) + c` (Eq. 12), for skewed scores.

    The paper starts at the lowest score, where the logarithm is infinite. Here `start` lies `margin` times the score
    range below it, whatever the scale of the scores. Desiderata: all three.

    >>> fitted = Gamma().fit([0.1, 0.5, 1.0, 2.0, 4.0, 8.0], [0, 0, 1, 0, 1, 1])
    >>> sorted(fitted.parameters)
    ['a', 'b', 'c']
    """

    meets: ClassVar[Desiderata] = Desiderata(any_score=True, increasing=True, expressive=True)
    margin: float = 0.01

    def __post_init__(self) -> None:
        _require_margin(self.margin)

    @property
    def basis(self) -> Basis:
        return Log(self.margin)


@dataclass(frozen=True, slots=True)
class GammaGaussian(Parametric):
    """Gamma negatives and Gaussian positives: `a s^2 + b s + b' log s + c`, a <= 0 (Eq. 22).

    The paper gave this family up for want of a linear monotonicity constraint; on a bounded score range two linear
    constraints suffice. `margin` is as in `Gamma`, which it contains. Desiderata: all three.

    >>> fitted = GammaGaussian().fit([0.1, 0.5, 1.0, 2.0, 4.0, 8.0], [0, 0, 1, 0, 1, 1])
    >>> sorted(fitted.parameters)
    ['a', 'b', "b'", 'c']
    """

    meets: ClassVar[Desiderata] = Desiderata(any_score=True, increasing=True, expressive=True)
    margin: float = 0.01

    def __post_init__(self) -> None:
        _require_margin(self.margin)

    @property
    def basis(self) -> Basis:
        return LogQuadratic(self.margin)


@dataclass(frozen=True, slots=True)
class Temperature(Parametric):
    """One knob, the sharpness of a sigmoid: `s / T` (Guo et al. 2017). Even odds stay at score 0.

    For scores that are logits already; ranking scores seldom are. Desiderata: any score, increasing; not expressive.

    >>> fitted = Temperature().fit([-2.0, -1.0, 1.0, 2.0], [0, 1, 0, 1])
    >>> fitted.predict([0.0])
    array([0.5])
    """

    meets: ClassVar[Desiderata] = Desiderata(any_score=True, increasing=True, expressive=False)

    @property
    def basis(self) -> Basis:
        return Linear()

    def _fit(self, summary: Summary) -> LogisticMap:
        scores = summary.scores
        gain = summary.total @ np.maximum(scores, 0) - summary.positive @ scores
        if gain <= _ROUNDING * (summary.total @ np.abs(scores)):
            raise _no_optimum(summary, "above 0 wherever it could, so no sharpness is sharp enough")
        size = np.sqrt(summary.total @ scores**2 / summary.total.sum())
        width = summary.high - summary.low
        floors = np.array([SMALLEST_RISE * size / width])
        pull = np.array([summary.positive @ summary.positive_scores]) / size
        rate = float(summary.positive.sum() / summary.total.sum())
        problem = Problem(scores[None] / size, summary.total, pull, floors, rate)
        solution = solve(problem, floors)
        to_raw = np.array([[summary.low], [width]]) / size
        return _as_map(self.name, self.basis, summary, problem, solution, to_raw)


@dataclass(frozen=True, slots=True)
class _Frame:
    """Generators in standard units (mean 0, variance 1), and the way back to raw coefficients."""

    design: Floats
    pull: Floats
    rises: Floats
    to_raw: Floats

    @classmethod
    def of(cls, basis: Basis, summary: Summary) -> "_Frame":
        def at(scores: Floats) -> Floats:
            return np.array(basis.generators(scores, summary.low, summary.high, NumpyOps()))

        generators = at(summary.scores)
        usable = _varies(generators)
        _require_optimum(summary, generators[usable])
        weights = summary.total / summary.total.sum()
        centre = generators @ weights
        spread = np.sqrt((generators - centre[:, None]) ** 2 @ weights)[usable]
        centre = centre[usable]

        def standard(raw: Floats) -> Floats:
            columns = (raw[usable] - centre[:, None]) / spread[:, None]
            return np.vstack([np.ones(raw.shape[1]), columns])

        design = standard(generators)
        positives = design if summary.exact else standard(at(summary.positive_scores))
        to_raw = np.zeros((len(generators) + 1, len(spread) + 1))
        to_raw[0] = [1, *(-centre / spread)]
        to_raw[1 + np.flatnonzero(usable), 1 + np.arange(len(spread))] = 1 / spread
        rises = np.diff(at(np.array([summary.low, summary.high])))[usable, 0]
        return cls(design, positives @ summary.positive, rises / spread, to_raw)


def _as_map(
    name: str, basis: Basis, summary: Summary, problem: Problem, solution: Solution, to_raw: Floats
) -> LogisticMap:
    raw = to_raw @ solution.point.solution
    covariance = to_raw @ _sandwich(summary, problem, solution) @ to_raw.T
    # A floor times a spread, divided by it again, may round below zero's safe side: floors are positive, keep them so.
    coefficients = np.maximum(raw[1:], 0).tolist()
    at_bound = np.flatnonzero(~solution.free & np.isfinite(problem.floors))
    if len(at_bound) == np.isfinite(problem.floors).sum():
        _warn_flat(name)
    record = replace(
        record_of(summary),
        loss=solution.point.value,
        residual=solution.residual,
        iterations=solution.iterations,
        at_bound=tuple(
            f"coefficient {index}"
            for index in np.flatnonzero(raw[1:] <= _floor_of(basis, summary) * 1.01)
        ),
    )
    rows = tuple(tuple(row) for row in covariance.tolist())
    return LogisticMap(
        name, basis, summary.low, summary.high, float(raw[0]), tuple(coefficients), rows, record
    )


def _floor_of(basis: Basis, summary: Summary) -> Floats:
    """The least each coefficient may be."""
    ends = np.array([summary.low, summary.high])
    rises = np.diff(np.array(basis.generators(ends, summary.low, summary.high, NumpyOps())))[:, 0]
    return SMALLEST_RISE / np.maximum(rises, 1e-300)


def _sandwich(summary: Summary, problem: Problem, solution: Solution) -> Floats:
    """Covariance that stays right under inverse-propensity weights; coefficients on their floor count as known."""
    point = solution.point
    free = np.flatnonzero(solution.free)
    bread = np.linalg.pinv(
        problem.curvature(point)[np.ix_(free, free)] * summary.total.sum(), hermitian=True
    )
    columns = problem.design[free]
    meat = (columns * summary.squared_residuals(point.probabilities)) @ columns.T
    covariance = np.zeros((len(point.solution), len(point.solution)))
    covariance[np.ix_(free, free)] = bread @ meat @ bread
    return covariance


def _varies(generators: Floats) -> npt.NDArray[np.bool_]:
    """Generators that differ over the data by more than rounding; a saturated sigmoid's do not."""
    varies: npt.NDArray[np.bool_] = np.ptp(generators, axis=1) > _ROUNDING * np.maximum(
        np.abs(generators).max(axis=1), 1
    )
    if not varies.any():
        raise DataError(
            "scores must differ by more than rounding on the scale of a sigmoid, which Beta is tied to. "
            "Rescale the scores, or use Gaussian, which does not mind their scale."
        )
    return varies


def _require_optimum(summary: Summary, generators: Floats) -> None:
    """Raise exactly when the loss has no finite minimum.

    Along any increasing direction the loss grows in the end by the generator's sum over the best placed mass (the
    positive mass moved to the highest scores) less its sum over the positive mass where it is. Every direction is a
    sum of generators, and the best placement is the same for all of them, so it is enough to look at each alone.
    """
    positive, total = summary.positive, summary.total
    mass = positive.sum()
    if mass >= total.sum():
        raise _no_optimum(summary, "above the total, as if more than every pair were liked")
    above = np.concatenate([np.cumsum(total[::-1])[-2::-1], [0.0]])
    placed = np.clip(mass - above, 0, total)
    moved = placed - positive
    heights = generators - generators[:, [np.argmax(placed > 0)]]
    if (heights @ moved <= _ROUNDING * (np.abs(heights) @ np.abs(moved))).any():
        raise _no_optimum(
            summary, "as high as it could: scores separate it too well for any finite slope"
        )


def _no_optimum(summary: Summary, where: str) -> FitError:
    return FitError(
        f"no finite best fit exists, got positive mass {summary.positive.sum():.6g} of {summary.total.sum():.6g} in "
        f"{summary.rows:,} rows, which sits {where}. Raise the propensity clip, calibrate on more rows or more "
        "negatives; if negatives were sampled, say at what rate (undersampling_weights, or --negatives-kept)."
    )


def _require_margin(margin: float) -> None:
    if not 1e-6 <= margin <= 1e6:
        raise DataError(
            f"margin must lie in [1e-6, 1e6], got {margin}. It is a fraction of the score range."
        )


def _warn_flat(name: str) -> None:
    remedy = (
        "Even odds at score 0 do not suit these scores: use Platt or Gaussian."
        if name == "Temperature"
        else "Higher scores do not go with more positives here: if lower is better (distances, ranks), negate them."
    )
    warnings.warn(f"the fitted {name} map hardly rises. {remedy}", FlatMapWarning, stacklevel=6)
