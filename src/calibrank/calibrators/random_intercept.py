"""Calibration where the level differs by group: queries, users, sessions."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from calibrank._arguments import instance, real, shown, whole
from calibrank._logit import expit, logit
from calibrank._validation import Floats, IdsLike, Indices, Numbers, add_up, ids, score_column
from calibrank.calibrators._group_weights import capped_masses
from calibrank.calibrators._mixed_model import fit_mixed_model, integrated
from calibrank.calibrators.calibrator import (
    Calibrator,
    record_of,
    require_both_classes,
    require_spread,
)
from calibrank.calibrators.parametric import Gaussian, Platt
from calibrank.calibrators.solver import SMALLEST_RISE
from calibrank.calibrators.spline import Spline
from calibrank.errors import DataError, FitError, FlatMapWarning
from calibrank.evidence import Evidence, Labels, as_evidence
from calibrank.maps import CalibrationMap, CandidateLoss, FitRecord, PiecewiseMap, Selection
from calibrank.summary import Summary
from calibrank.tables import hash_partitions

# Factors of the slope that are tried; the constant is the factor 0.
_FACTORS = (0.25, 0.5, 0.75, 1.0)
_MOST_FOLDS = 1000
# Knots of each kind: quantiles of the scores, and evenly spaced ones.
_KNOTS = 51
# Points that a level is matched on, and how closely, in log odds.
_MOST_POINTS = 256
_LEVEL_ERROR = 1e-9
# Probabilities closer to 0 or 1 are clipped, so that one row cannot make a loss infinite.
_SMALLEST = 1e-12
_MOST_LOG_ODDS = -float(logit(_SMALLEST))
# Candidates with less weight than this, relative to the best one, are left out.
_SMALLEST_WEIGHT = 1e-3

CONSTANT = "constant"
"""The name of the candidate that ignores the score."""


class _Curve(NamedTuple):
    """Log odds = intercept + slope * base curve, with normal levels of this spread integrated."""

    base: CalibrationMap | None
    intercept: float
    slope: float
    spread: float

    def probabilities(self, scores: Floats) -> Floats:
        log_odds = np.full(len(scores), self.intercept)
        if self.base is not None:
            log_odds = self.intercept + self.slope * self.base.log_odds(scores)
        probabilities: Floats = expit(log_odds)
        return integrated(log_odds, self.spread) if self.spread else probabilities


@dataclass(frozen=True, slots=True)
class _Average:
    """The weighted mean of the probabilities of several curves."""

    curves: tuple[_Curve, ...]
    weights: tuple[float, ...]

    def log_odds(self, scores: Floats) -> Floats:
        mean = np.zeros(len(scores))
        for curve, weight in zip(self.curves, self.weights, strict=True):
            mean += weight * curve.probabilities(scores)
        log_odds: Floats = logit(np.clip(mean, _SMALLEST, 1 - _SMALLEST))
        return log_odds


@dataclass(frozen=True, slots=True)
class RandomIntercept:
    """A map for groups never seen, such as new queries, where the level differs by group.

    For each method of `bases`, the candidates are its fit on all rows together, and its curve with
    a random intercept per group, which is integrated out, with the full slope and with smaller
    ones. A constant is a candidate too, so that scores which do not carry over to other groups
    hardly count. The map is the mean of all candidates whose log loss on held-out groups is close
    to the lowest, in standard errors over groups; `record.selection` has these losses. The level is
    the rate over the rows, so the map is for rows such as those of the fit; but where a few groups
    have most of the rows, their weight is capped, because the next large group will be another.
    Standard errors are robust to dependence within groups.

    >>> rng = np.random.default_rng(0)
    >>> queries = np.repeat(np.arange(60), 20)
    >>> scores = rng.normal(size=1200)
    >>> level = rng.normal(0, 1.5, 60)[queries]
    >>> labels = rng.random(1200) < 1 / (1 + np.exp(-(scores + level)))
    >>> fitted = RandomIntercept().fit(scores, labels, queries)
    >>> bool(fitted.predict(2.0) < 1 / (1 + np.exp(-2.0)))
    True
    """

    bases: tuple[Calibrator, ...] = (Platt(), Gaussian(), Spline())
    factors: tuple[float, ...] = _FACTORS
    folds: int = 5

    def __post_init__(self) -> None:
        if not isinstance(self.bases, tuple) or not self.bases:
            raise DataError(
                f"bases must be a tuple of calibrators, got {shown(self.bases)}. "
                "Use e.g. (Platt(), Spline())."
            )
        for base in self.bases:
            instance("bases", base, Calibrator)
        for factor in self.factors:
            real("factors", factor, "(0, 1]", "Each multiplies the slope.")
        object.__setattr__(self, "folds", whole("folds", self.folds, 2, _MOST_FOLDS))

    @property
    def name(self) -> str:
        """The name of the method in tables and saved maps."""
        return type(self).__name__

    @property
    def fewest_groups(self) -> int:
        """The number of groups that a fit needs: two per fold."""
        return 2 * self.folds

    def fit(self, scores: Numbers, labels: Labels, groups: IdsLike) -> PiecewiseMap:
        """Weight the candidates by held-out groups, and fit them on all rows.

        Folds are made of groups by a hash of their ids: the same rows give the same map.
        """
        rows = _Rows.of(scores, labels, groups)
        if rows.n_groups < self.fewest_groups:
            rule = f"hold at least {self.fewest_groups} ids for {self.folds} folds"
            remedy = "Judge more of them, or use a fixed method such as Platt()."
            raise FitError(f"groups must {rule}, got {rows.n_groups}. {remedy}")
        summary = rows.summary()
        require_both_classes(summary)
        require_spread(summary)
        capped = rows.capped()
        selection = self._select(capped)
        if selection.chosen == CONSTANT:
            _warn_constant()
        average = _averaged(self._curves(capped), selection)
        losses = rows.losses(average.log_odds(rows.scores))
        record = replace(
            record_of(summary),
            loss=float(losses.sum() / rows.total.sum()),
            selection=selection,
        )
        return _as_map(self.name, average, capped, summary, record)

    def _select(self, rows: _Rows) -> Selection:
        losses: dict[str, list[Floats]] = {}
        masses = []
        fold_of_row = _balanced_folds(rows, self.folds)[rows.group]
        for fold in range(self.folds):
            held_out = rows.where(fold_of_row == fold)
            masses.append(held_out.by_group(held_out.total))
            for name, curve in self._curves(rows.where(fold_of_row != fold)).items():
                row_losses = held_out.losses(logit(curve.probabilities(held_out.scores)))
                losses.setdefault(name, []).append(held_out.by_group(row_losses))
        return _selection(losses, masses)

    def _curves(self, rows: _Rows) -> dict[str, _Curve]:
        """Every candidate that can be fitted on these rows, by name, the simplest first."""
        rate = float(rows.positive.sum() / rows.total.sum())
        curves = {CONSTANT: _Curve(None, float(logit(rate)), 0.0, 0.0)}
        for base in self.bases:
            try:
                with warnings.catch_warnings():
                    # A flat base curve needs no warning: its held-out loss shows it.
                    warnings.simplefilter("ignore", FlatMapWarning)
                    fitted = base.fit_summary(rows.summary())
            except (FitError, DataError):
                continue
            curves |= self._curves_of(base.name, fitted, rows)
        return curves

    def _curves_of(self, name: str, fitted: CalibrationMap, rows: _Rows) -> dict[str, _Curve]:
        curves = {name: _Curve(fitted, 0.0, 1.0, 0.0)}
        base = fitted.log_odds(rows.scores)
        model = fit_mixed_model(base, rows.positive, rows.total, rows.group, rows.n_groups)
        if model.slope == 0:
            return curves
        for factor in self.factors:
            slope = factor * model.slope
            level = _matching_level(slope * base, model.spread, rows)
            part = "" if factor == 1 else f", {factor:.0%} of the slope"
            label = f"{name} with a random intercept{part}"
            curves[label] = _Curve(fitted, level, slope, model.spread)
        return curves


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    scores: Floats
    evidence: Evidence
    group: Indices
    names: tuple[object, ...]

    @classmethod
    def of(cls, scores: Numbers, labels: Labels, groups: IdsLike) -> _Rows:
        array = score_column(scores)[0].astype(np.float64)
        evidence = as_evidence(labels, len(array))
        names, group = np.unique(ids("groups", groups, len(array)), return_inverse=True)
        return cls(array, evidence, group, tuple(names.tolist()))

    @property
    def positive(self) -> Floats:
        return self.evidence.positive

    @property
    def total(self) -> Floats:
        return self.evidence.total

    @property
    def n_groups(self) -> int:
        return len(self.names)

    def summary(self) -> Summary:
        return Summary.of(self.scores, self.evidence)

    def where(self, kept: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> _Rows:
        rows = np.flatnonzero(kept)
        present, group = np.unique(self.group[rows], return_inverse=True)
        names = tuple([self.names[index] for index in present.tolist()])
        return _Rows(self.scores[rows], self.evidence.rows(rows), group, names)

    def capped(self) -> _Rows:
        """The same rows, where groups with much mass have less, if that estimates rates better."""
        mass = self.by_group(self.total)
        capped = capped_masses(self.by_group(self.positive), mass)
        factor = (capped / np.maximum(mass, 1e-300))[self.group]
        # Groups of equal mass count as they are, up to rounding.
        if np.allclose(factor, 1, rtol=1e-9):
            return self
        evidence = Evidence(self.positive * factor, self.total * factor, self.evidence.kind)
        return replace(self, evidence=evidence)

    def by_group(self, values: Floats) -> Floats:
        return add_up(self.group, values, self.n_groups)

    def losses(self, log_odds: Floats) -> Floats:
        """The log loss of each row; log odds are clipped so that no row makes it infinite."""
        log_odds = np.clip(log_odds, -_MOST_LOG_ODDS, _MOST_LOG_ODDS)
        losses: Floats = self.total * np.logaddexp(0, log_odds) - self.positive * log_odds
        return losses


def _balanced_folds(rows: _Rows, folds: int) -> Indices:
    """The fold of each group: in turn, in the order of a hash of their ids."""
    order = np.argsort(hash_partitions(rows.names, 2**32), kind="stable")
    fold = np.empty(rows.n_groups, dtype=np.intp)
    fold[order] = np.arange(rows.n_groups) % folds
    return fold


def _selection(losses: dict[str, list[Floats]], masses: list[Floats]) -> Selection:
    """The losses of all candidates, and which is the lowest; of equal ones the simplest.

    Standard errors are those of the difference from the lowest, paired by group.
    """
    mass = np.concatenate(masses)
    sums = {}
    for name, parts in losses.items():
        # A candidate that could not be fitted without some fold is no choice.
        if len(parts) == len(masses):
            sums[name] = np.concatenate(parts)
    best = min(sums, key=lambda name: float(sums[name].sum()))
    total = mass.sum()
    compared = []
    for name in losses:
        if name not in sums:
            compared.append(CandidateLoss(name, None, None))
            continue
        # Residuals of a ratio of sums over groups.
        difference = sums[name] - sums[best]
        residuals = difference - mass * difference.sum() / total
        variance = (residuals**2).sum() * len(mass) / (len(mass) - 1)
        mean = float(sums[name].sum() / total)
        compared.append(CandidateLoss(name, mean, float(np.sqrt(variance) / total)))
    return Selection(best, len(masses), tuple(compared))


def _averaged(curves: dict[str, _Curve], selection: Selection) -> _Average:
    """Weights exp(-z^2 / 2), where z is the difference from the lowest loss in standard errors.

    Choosing the lowest instead would be choosing by chance where candidates are equally good, and
    with few groups the chosen one is then often worse than a constant.
    """
    compared = [each for each in selection.candidates if each.loss is not None]
    lowest = min(float(each.loss or 0) for each in compared)
    weights = {}
    for each in compared:
        excess = float(each.loss or 0) - lowest
        z = excess / float(each.standard_error or 1) if excess > 0 else 0.0
        weight = float(np.exp(-(z**2) / 2))
        if each.name in curves and weight >= _SMALLEST_WEIGHT:
            weights[each.name] = weight
    total = sum(weights.values())
    kept = tuple([curves[name] for name in weights])
    return _Average(kept, tuple([weight / total for weight in weights.values()]))


def _matching_level(sloped: Floats, spread: float, rows: _Rows) -> float:
    """The intercept at which the mean probability over the rows is their rate.

    The model's own intercept is that of a typical group, each counted once. Groups with more
    judged rows often have other rates, and probabilities are for rows.
    """
    from scipy.optimize import brentq  # noqa: PLC0415  (slow to load)

    target = float(rows.positive.sum())
    # Neighbours are integrated together: the error is of second order in their distance.
    order = np.argsort(sloped, kind="stable")
    point = np.empty(len(order), dtype=np.intp)
    point[order] = np.arange(len(order)) * min(_MOST_POINTS, len(order)) // len(order)
    mass = add_up(point, rows.total)
    means = add_up(point, rows.total * sloped) / np.maximum(mass, 1e-300)

    def excess(level: float) -> float:
        return float(mass @ integrated(level + means, spread)) - target

    low, high = -100.0 - float(sloped.max()), 100.0 - float(sloped.min())
    # Weighted positives may exceed the total: no level is high enough.
    if excess(high) <= 0:
        return high
    level: float = brentq(excess, low, high, xtol=_LEVEL_ERROR)
    return level


def _warn_constant() -> None:
    message = (
        "held-out groups say that these scores are no better than a constant: the map hardly "
        "rises. It keeps the order of the scores, but their differences mean nothing here; judge "
        "more groups, or use a better ranker."
    )
    # From here: RandomIntercept.fit, and then the caller.
    warnings.warn(message, FlatMapWarning, stacklevel=3)


def _as_map(
    name: str, curve: _Average, rows: _Rows, summary: Summary, record: FitRecord
) -> PiecewiseMap:
    knots = _knots(summary)
    # Like every map here it rises, if too little to be seen: the order of the scores is kept.
    rise = SMALLEST_RISE * (np.linspace(0, 1, len(knots)) - 0.5)
    values = np.maximum.accumulate(curve.log_odds(knots)) + rise
    covariance = _robust_covariance(curve, rows)
    design = _design(curve, knots)
    variance = ((covariance @ design) * design).sum(axis=0)
    slopes = np.diff(values) / np.diff(knots)
    multiplier_error = float(np.sqrt(max(covariance[1, 1], 0.0)))
    return PiecewiseMap(
        method=name,
        knots=tuple(knots.tolist()),
        values=tuple(values.tolist()),
        end_slopes=(float(slopes[0]), float(slopes[-1])),
        value_errors=tuple(np.sqrt(np.maximum(variance, 0)).tolist()),
        slope_errors=(multiplier_error * slopes[0], multiplier_error * slopes[-1]),
        record=record,
    )


def _knots(summary: Summary) -> Floats:
    """Evenly spaced scores and quantiles: the curve is smooth in one or the other."""
    cumulative = np.cumsum(summary.total) / summary.total.sum()
    places = np.searchsorted(cumulative, np.linspace(0, 1, _KNOTS)[1:-1] - 1e-9)
    even = np.linspace(summary.low, summary.high, _KNOTS)
    knots: Floats = np.unique(np.concatenate([even, summary.scores[places]]))
    # Knots closer than this would make slopes of rounding errors.
    apart = np.append(True, np.diff(knots) > 1e-9 * (summary.high - summary.low))
    return knots[apart]


def _robust_covariance(curve: _Average, rows: _Rows) -> Floats:
    """The covariance of the level and of a factor of the curve, robust within groups.

    As in generalized estimating equations (Liang and Zeger 1986): bread from the marginal model,
    meat from the sum of each group's residuals.
    """
    design = _design(curve, rows.scores)
    probabilities = expit(curve.log_odds(rows.scores))
    weights = rows.total * probabilities * (1 - probabilities)
    bread = np.linalg.pinv((design * weights) @ design.T, hermitian=True)
    residuals = design * (rows.positive - rows.total * probabilities)
    sums = np.array([add_up(rows.group, each, rows.n_groups) for each in residuals])
    # A few groups underestimate their variance by the factor (n - 1) / n.
    correction = rows.n_groups / (rows.n_groups - 1)
    covariance: Floats = correction * bread @ (sums @ sums.T) @ bread
    return covariance


def _design(curve: _Average, scores: Floats) -> Floats:
    """A row of ones, and a row of the curve's log odds."""
    log_odds = curve.log_odds(scores)
    return np.vstack([np.ones(len(scores)), log_odds])
