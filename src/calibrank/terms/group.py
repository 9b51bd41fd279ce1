"""Calibration where the level differs by group: queries, users, sessions."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from calibrank._internal.blas import one_blas_thread
from calibrank._internal.logit import expit, logit
from calibrank._internal.validation import Floats, IdsLike, Numbers, add_up
from calibrank.errors import DataError, FitError, FlatMapWarning
from calibrank.evidence import Labels
from calibrank.maps import CalibrationMap, CandidateLoss, PiecewiseCurve, Selection
from calibrank.maps.training import SMALLEST_RISE, record_of, require_both_classes, require_spread
from calibrank.summary import Summary
from calibrank.tables import hash_partitions
from calibrank.terms._groups import SMALLEST, GroupedRows, fit_mixed_model, integrated

# Points that a level is matched on, and how closely, in log odds.
_MOST_POINTS = 256
_LEVEL_ERROR = 1e-9
# Candidates with less weight than this, relative to the best one, are left out.
_SMALLEST_WEIGHT = 1e-3
# Factors of the slope that are tried; the constant is the factor 0.
_FACTORS = (0.25, 0.5, 0.75, 1.0)
# Knots of each kind: quantiles of the scores, and evenly spaced ones.
_KNOTS = 51

CONSTANT = "constant"
"""The name of the candidate that ignores the score."""


@dataclass(frozen=True, slots=True)
class GroupFit:
    """A map for groups never seen, such as new queries, where the level differs by group.

    For each method of `bases`, the candidates are its fit on all rows together, and its curve with
    a random intercept per group, which is integrated out, with the full slope and with smaller
    ones. A constant is a candidate too, so that scores which do not carry over to other groups
    hardly count. The map is the mean of all candidates, weighted by how likely they are by held-out
    groups (`record.selection` has the losses). The level is the rate over the rows, so the map is
    for rows such as those of the fit; but where a few groups have most of the rows, their weight is
    capped, because the next large group will be another. Beyond the scores that three groups reach
    the map is constant, up to a rise that keeps the order.
    Standard errors are robust to dependence within groups.
    """

    bases: tuple[Any, ...]
    """Calibrators."""
    folds: int = 5

    @property
    def fewest_groups(self) -> int:
        """The number of groups that a fit needs: two per fold."""
        return 2 * self.folds

    def fit(self, scores: Numbers, labels: Labels, groups: IdsLike) -> CalibrationMap:
        """Weight the candidates by held-out groups, and fit them on all rows.

        Folds are made of groups by a hash of their ids: the same rows give the same map.
        """
        rows = GroupedRows.of(scores, labels, groups)
        if rows.n_groups < self.fewest_groups:
            rule = f"hold at least {self.fewest_groups} ids for {self.folds} folds"
            remedy = "Judge more of them, or use a fixed method such as Platt()."
            raise FitError("groups", rule, rows.n_groups, remedy)
        summary = rows.summary()
        require_both_classes(summary)
        require_spread(summary)
        supported = replace(rows, scores=np.clip(rows.scores, *rows.supported_range()))
        capped = supported.capped()
        selection = self._select(capped)
        if selection.chosen == CONSTANT:
            message = (
                "held-out groups say that these scores are no better than a constant: the map "
                "hardly rises. It keeps the order of the scores, but their differences mean "
                "nothing here; judge more groups, or use a better ranker."
            )
            # From here: Model.fit, and then the caller.
            warnings.warn(message, FlatMapWarning, stacklevel=3)
        average = _averaged(self._curves(capped), selection)
        losses = rows.losses(average.log_odds(supported.scores))
        record = replace(
            record_of(summary), loss=float(losses.sum() / rows.total.sum()), selection=selection
        )
        return CalibrationMap(_as_curve(average, capped, supported.summary()), record)

    @one_blas_thread()
    def _select(self, rows: GroupedRows) -> Selection:
        losses: dict[str, list[Floats]] = {}
        masses = []
        # Groups are put into folds in turn, in the order of a hash of their ids.
        order = np.argsort(hash_partitions(rows.names, 2**32), kind="stable")
        fold_of_group = np.empty(rows.n_groups, dtype=np.intp)
        fold_of_group[order] = np.arange(rows.n_groups) % self.folds
        fold_of_row = fold_of_group[rows.group]
        for fold in range(self.folds):
            held_out = rows.where(fold_of_row == fold)
            masses.append(held_out.by_group(held_out.total))
            for name, curve in self._curves(rows.where(fold_of_row != fold)).items():
                row_losses = held_out.losses(logit(curve.probabilities(held_out.scores)))
                losses.setdefault(name, []).append(held_out.by_group(row_losses))
        return _selection(losses, masses)

    @one_blas_thread()
    def _curves(self, rows: GroupedRows) -> dict[str, Curve]:
        """Every candidate that can be fitted on these rows, by name, the simplest first."""
        rate = float(rows.positive.sum() / rows.total.sum())
        curves = {CONSTANT: Curve(None, float(logit(rate)), 0.0, 0.0)}
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

    def _curves_of(self, name: str, fitted: CalibrationMap, rows: GroupedRows) -> dict[str, Curve]:
        curves = {name: Curve(fitted, 0.0, 1.0, 0.0)}
        base = fitted.log_odds(rows.scores)
        model = fit_mixed_model(base, rows.positive, rows.total, rows.group)
        if model.slope == 0:
            return curves
        for factor in _FACTORS:
            slope = factor * model.slope
            level = matching_level(slope * base, model.spread, rows)
            part = "" if factor == 1 else f", {factor:.0%} of the slope"
            label = f"{name} with a random intercept{part}"
            curves[label] = Curve(fitted, level, slope, model.spread)
        return curves


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
    return Selection(best, len(masses), tuple(compared), averaged=True)


def _as_curve(curve: Average, rows: GroupedRows, summary: Summary) -> PiecewiseCurve:
    knots = _knots(summary)
    # Like every map here it rises, if too little to be seen: the order of the scores is kept.
    rise = SMALLEST_RISE * (np.linspace(0, 1, len(knots)) - 0.5)
    design = curve.design(knots)
    values = np.maximum.accumulate(design[1]) + rise
    covariance = _robust_covariance(curve, rows)
    variance = ((covariance @ design) * design).sum(axis=0)
    # Beyond the scores that several groups reach, more of the same is all that is known.
    end_slope = SMALLEST_RISE / (summary.high - summary.low)
    return PiecewiseCurve(
        knots=tuple(knots.tolist()),
        values=tuple(values.tolist()),
        end_slopes=(end_slope, end_slope),
        value_errors=tuple(np.sqrt(np.maximum(variance, 0)).tolist()),
        slope_errors=(0.0, 0.0),
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


class Curve(NamedTuple):
    """Log odds = intercept + slope * base curve, with normal levels of this spread integrated."""

    base: CalibrationMap | None
    intercept: float
    slope: float
    spread: float

    def probabilities(self, scores: Floats) -> Floats:
        """Probabilities of new groups at these scores."""
        log_odds = np.full(len(scores), self.intercept)
        if self.base is not None:
            log_odds = self.intercept + self.slope * self.base.log_odds(scores)
        probabilities: Floats = expit(log_odds)
        return integrated(log_odds, self.spread) if self.spread else probabilities


@dataclass(frozen=True, slots=True)
class Average:
    """The weighted mean of the probabilities of several curves."""

    curves: tuple[Curve, ...]
    weights: tuple[float, ...]

    def log_odds(self, scores: Floats) -> Floats:
        """Log odds at these scores."""
        mean = np.zeros(len(scores))
        for curve, weight in zip(self.curves, self.weights, strict=True):
            mean += weight * curve.probabilities(scores)
        return logit(np.clip(mean, SMALLEST, 1 - SMALLEST))

    def design(self, scores: Floats) -> Floats:
        """A row of ones, and a row of the curve's log odds."""
        return np.vstack([np.ones(len(scores)), self.log_odds(scores)])


def _averaged(curves: dict[str, Curve], selection: Selection) -> Average:
    """The mean of the candidates, weighted by the root of their likelihood on held-out groups.

    A candidate that is d standard errors of a slope away from the best one has a log likelihood
    that is lower by d^2 / 2, with a standard error of d: z = d / 2 of them, and a likelihood of
    exp(-d^2 / 2) = exp(-2 z^2). Rows that depend within groups multiply both alike, so z, whose
    standard error is over groups, accounts for it where the likelihood itself would not. The root,
    exp(-z^2), because the best one is so partly by chance: on synthetic pools of 20 to 50 queries
    slopes are then right on average, and with the likelihood itself 5% too steep where scores tell
    little. Choosing the best alone would be choosing by chance where candidates are equally good.
    """
    compared = [each for each in selection.candidates if each.loss is not None]
    lowest = min(float(each.loss or 0) for each in compared)
    weights = {}
    for each in compared:
        excess = float(each.loss or 0) - lowest
        z = excess / float(each.standard_error or 1) if excess > 0 else 0.0
        weight = float(np.exp(-(z**2)))
        if each.name in curves and weight >= _SMALLEST_WEIGHT:
            weights[each.name] = weight
    total = sum(weights.values())
    kept = tuple([curves[name] for name in weights])
    return Average(kept, tuple([weight / total for weight in weights.values()]))


def matching_level(sloped: Floats, spread: float, rows: GroupedRows) -> float:
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
    return brentq(excess, low, high, xtol=_LEVEL_ERROR)


def _robust_covariance(curve: Average, rows: GroupedRows) -> Floats:
    """The covariance of the level and of a factor of the curve, robust within groups.

    As in generalized estimating equations (Liang and Zeger 1986): bread from the marginal model,
    meat from the sum of each group's residuals.
    """
    design = curve.design(rows.scores)
    probabilities = expit(design[1])
    weights = rows.total * probabilities * (1 - probabilities)
    bread = np.linalg.pinv((design * weights) @ design.T)
    residuals = design * (rows.positive - rows.total * probabilities)
    sums = np.array([add_up(rows.group, each, rows.n_groups) for each in residuals])
    # A few groups underestimate their variance by the factor (n - 1) / n.
    correction = rows.n_groups / (rows.n_groups - 1)
    return correction * bread @ (sums @ sums.T) @ bread
