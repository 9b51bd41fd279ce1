"""Fit smooth terms and levels jointly, from rows in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np

from calibrank._internal.blas import one_blas_thread
from calibrank._internal.segment_keys import Key, encode_columns, leaves_of
from calibrank._internal.validation import Floats, Indices, add_up
from calibrank.errors import DataError, FitError
from calibrank.evidence import Evidence
from calibrank.maps import CalibrationMap, LevelTerm, SmoothTerm, Term
from calibrank.maps.level import require_present
from calibrank.maps.targets.numpy import NumpyTarget
from calibrank.maps.term import number_column
from calibrank.terms._design import SMALL, Design, Group, Levels
from calibrank.terms._ridge import Solution, fit_ridge
from calibrank.terms.level import LevelTable
from calibrank.terms.spec import Level, Smooth

MOST_ROWS = 20_000_000
"""All rows of a fit are in memory: scores, evidence and columns, 1 to 2 GB for this many."""
# Most functions are nearly straight: a deviation's standard deviation of 0.1 is expected before
# the data. With thousands of labels it changes nothing; with 300, a function of the most likely
# standard deviation alone is too often one of noise.
_CURVATURE_RATE = 10.0
# Beyond the outermost knots, in normal scores and rows, a function is constant.
_REACH = 2.3
_TAIL_ROWS = 5


@one_blas_thread()
def fit_rows(
    fitted: CalibrationMap,
    specs: Sequence[Level | Smooth],
    scores: Floats,
    evidence: Evidence,
    columns: Any,
    *,
    offset: Floats | None = None,
) -> CalibrationMap:
    """Add terms to a map of the score, fitted jointly: each one given the others.

    The intercept and the slope of the curve are fitted as well. With an `offset`, in log odds, they
    are shrunk towards what they are, as is right where the map was fitted to more than these rows.
    """
    if len(scores) > MOST_ROWS:
        rule = f"have at most {MOST_ROWS:,} rows, which are all in memory"
        remedy = "Fit on a random sample of them, or use a Level alone."
        raise DataError("a fit of these terms", rule, f"{len(scores):,}", remedy)
    log_odds = np.asarray(fitted.curve.log_odds_on(NumpyTarget(), scores), dtype=np.float64)
    positive = np.asarray(evidence.positive, dtype=np.float64)
    total = np.asarray(evidence.total, dtype=np.float64)
    is_change = offset is not None
    # Around the mean, a change of a slope leaves the level as it is.
    mean = float(total @ log_odds / total.sum())
    center = mean if is_change else 0.0
    numbers = [NumberBlock.of(each, columns, total) for each in specs if isinstance(each, Smooth)]
    levels = levels_of([each for each in specs if isinstance(each, Level)], columns, len(total))
    levels = with_slopes(levels, is_change=is_change)
    middle = mean - center
    design = Design(log_odds - center, numbers, levels, middle=middle, is_change=is_change)
    solution = fit_ridge(design, positive, total, 0.0 if offset is None else log_odds + offset)
    if solution.loss < 0:
        found = f"{solution.loss:.4f}, as the evidence has more positive than total mass"
        raise FitError("the log loss", "be 0 or more", found, "Use positive_ips, or Level alone.")
    change = float(solution.coefficients[1])
    slope = change + (1.0 if is_change else 0.0)
    moved = fitted.with_curve_moved(float(solution.coefficients[0]) - change * center, slope)
    record = replace(moved.record, loss=solution.loss, residual=solution.residual, at_bound=())
    record = replace(record, iterations=solution.iterations)
    middle = float(solution.coefficients[0]) + slope * mean
    terms: list[Term] = []
    for spec in specs:
        pairs = zip(design.groups, solution.sds, strict=True)
        own = [(group, sd) for group, sd in pairs if getattr(group.block, "spec", None) is spec]
        if isinstance(spec, Smooth):
            terms.append(_smooth(own[0][0], solution))
        else:
            terms.append(_levels(own, solution, total, middle, slope))
    return CalibrationMap(moved.curve, record, tuple(terms))


def _smooth(line: Group, solution: Solution) -> SmoothTerm:
    block = line.block
    place = slice(line.place.start, line.place.start + block.width)
    values = block.to_values @ solution.coefficients[place]
    covariance = solution.posterior.corner[place, place]
    variances = ((block.to_values @ covariance) * block.to_values).sum(axis=1)
    errors = np.sqrt(np.maximum(variances, 0))
    numbers = [tuple(each.tolist()) for each in (block.knots, values, errors)]
    return SmoothTerm(block.spec.column, *numbers)


def _levels(
    own: Sequence[tuple[Group, float]],
    solution: Solution,
    total: Floats,
    middle: float,
    slope: float,
) -> LevelTerm:
    """The sum of the changes of each nested column, as one term.

    Slopes of levels change nothing in the middle; they are relative to that of the curve.
    """
    slopes = {each[0].block.keys: each for each in own if each[0].are_slopes}
    intercepts = [each for each in own if not each[0].are_slopes]
    keys: list[Key] = []
    parts: list[Floats] = []
    rows: list[float] = []
    sds = []
    for group, sd in sorted(intercepts, key=lambda each: len(each[0].block.keys[0])):
        block = group.block
        of_slopes, slope_sd = slopes.get(block.keys, (None, 0.0))
        numbers = _numbers(group, of_slopes, solution, total)
        if parts:
            # A level has the changes of its parents as well.
            above = {key: number for number, key in enumerate(keys[-parts[-1].shape[1] :])}
            numbers += parts[-1][:, [above[key[:-1]] for key in block.keys]]
        parts.append(numbers)
        keys += block.keys
        rows += block.rows.tolist()
        sds.append((sd, slope_sd))
    at_middle, changes, variances, slope_variances, covariances = np.hstack(parts)
    changes = changes / slope
    spreads, slope_spreads = np.array(sds).T
    slope_numbers = (np.sqrt(slope_variances) / slope, covariances / slope)
    intercepts = at_middle - changes * middle
    table = np.array([intercepts, 1 + changes, np.sqrt(variances), rows, *slope_numbers])
    found = LevelTable(keys, table, middle)
    return found.term(own[0][0].block.spec.columns, np.array([spreads, slope_spreads / slope]))


def _numbers(group: Group, slopes: Group | None, solution: Solution, total: Floats) -> Floats:
    """By level: intercept, slope, their variances and covariance."""
    place = group.place
    masses = add_up(group.block.codes, total, group.block.count)
    # The intercept of the curve is that of the mean row: levels are known relative to it.
    weights = masses / masses.sum()
    contrasts = solution.posterior.contrasts
    numbers = np.zeros((5, group.block.count))
    numbers[0] = solution.coefficients[place]
    numbers[2] = contrasts(place, place, weights)
    if slopes is not None:
        numbers[1] = solution.coefficients[slopes.place]
        numbers[3] = contrasts(slopes.place, slopes.place, weights)
        numbers[4] = contrasts(place, slopes.place, weights)
    return numbers


@dataclass(frozen=True, slots=True, eq=False)
class NumberBlock:
    """The columns of one function: a line, and deviations with independent standard priors."""

    spec: Smooth
    values: Floats
    knots: Floats
    to_values: Floats
    """From coefficients to the values at knots."""

    @classmethod
    def of(cls, spec: Smooth, columns: Any, total: Floats) -> NumberBlock:
        """A function with knots at quantiles."""
        x = number_column(spec.column, columns, len(total), "feature")
        # A row without weight is as good as absent.
        used = x[total > 0]
        places = np.unique(np.quantile(used, _knot_levels(spec.knots, len(used)), method="nearest"))
        if len(places) < 2:
            # Nearly all rows have one value.
            places = np.unique([used.min(), used.max()])
        if len(places) < 2:
            what, found = f"column {spec.column!r}", f"only {x[0]:.6g}"
            raise DataError(what, "differ from row to row", found, "Leave it out.")
        # A line in the number of the knot, so in the normal score of the rank: one in the number
        # itself would follow a long tail, in which there are few rows.
        to_values = np.arange(float(len(places)))[:, None]
        if len(places) > 2:
            differences = np.diff(np.eye(len(places)), n=2, axis=0)
            to_values = np.hstack([to_values, np.linalg.pinv(differences)])
        means, products = _hat_moments(x, places, total / total.sum())
        # Centred, so that the intercept stays that of the mean row, and of unit spread.
        to_values = to_values - means @ to_values
        spreads = np.sqrt(np.maximum(np.diag(to_values.T @ products @ to_values), 0))
        if len(spreads) > 1:
            spreads[1:] = max(float(spreads[1:].mean()), 1e-12)
        return cls(spec, x, places, to_values / spreads)

    @property
    def width(self) -> int:
        return self.to_values.shape[1]

    def groups(self, start: int) -> list[Group]:
        """The groups of the coefficients: the line, and the deviations from it."""
        groups = [Group(slice(start, start + 1), self)]
        if self.width > 1:
            groups.append(Group(slice(start + 1, start + self.width), self, _CURVATURE_RATE))
        return groups

    def columns(self, rows: slice) -> Floats:
        """The columns of the design for some rows."""
        segment, position = _positions(self.values[rows], self.knots)
        steps = np.diff(self.to_values, axis=0)
        return self.to_values[segment] + position[:, None] * steps[segment]


def _knot_levels(knots: int, rows: int) -> Floats:
    """Quantiles of the knots, at equal distances in the normal score of the rank.

    The outermost ones leave a few rows beyond them, at least.
    """
    normal = NormalDist()
    reach = min(_REACH, normal.inv_cdf(1 - min(_TAIL_ROWS / rows, 0.1)))
    return np.array([normal.cdf(score) for score in np.linspace(-reach, reach, knots).tolist()])


def levels_of(specs: Sequence[Level], columns: Any, rows: int) -> list[Levels]:
    """The levels of each of the nested columns of each term."""
    found = []
    for spec in specs:
        encoded = encode_columns(spec.columns, columns, rows)
        require_present(spec.columns, encoded)
        for depth in range(1, len(encoded) + 1):
            places, keys = leaves_of(encoded[:depth])
            order = sorted(range(len(keys)), key=keys.__getitem__)
            numbers = np.empty(len(keys), dtype=np.intp)
            numbers[order] = np.arange(len(keys))
            ordered = tuple(keys[place] for place in order)
            found.append(Levels(numbers[places], len(keys), spec=spec, keys=ordered))
    return found


def with_slopes(levels: Sequence[Levels], *, is_change: bool) -> list[Levels]:
    """Levels, the fewest first; few have slopes too, except where a map is changed."""
    found = []
    for each in levels:
        spec = each.spec
        can_have = not is_change and each.count <= SMALL
        if spec is not None and spec.slopes and not can_have:
            rule = f"have at most {SMALL} levels beside other terms"
            if is_change:
                rule = "be the only term that is anchored"
            remedy = "Without slopes=True it has intercepts alone."
            raise DataError(repr(spec), rule, f"{each.count:,} levels", remedy)
        has_slopes = can_have and each.count > 1 and spec is not None and spec.slopes is not False
        found.append(replace(each, has_slopes=has_slopes))
    return sorted(found, key=lambda each: each.count)


def _positions(x: Floats, knots: Floats) -> tuple[Indices, Floats]:
    """The knot below each x, and the position between it and the next; constant beyond."""
    last = len(knots) - 2
    segment = np.clip(np.searchsorted(knots, x, side="right") - 1, 0, last)
    position = (x - knots[segment]) / (knots[segment + 1] - knots[segment])
    return segment, np.clip(position, 0, 1)


def _hat_moments(x: Floats, knots: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """The mean weight of each knot in linear interpolation, and the mean products of two."""
    segment, above = _positions(x, knots)
    below = 1 - above
    size = len(knots)
    means = np.bincount(segment, weights * below, size)
    means += np.bincount(segment + 1, weights * above, size)
    squares = np.bincount(segment, weights * below**2, size)
    squares += np.bincount(segment + 1, weights * above**2, size)
    neighbors = np.bincount(segment, weights * below * above, size)[:-1]
    products = np.diag(squares) + np.diag(neighbors, 1) + np.diag(neighbors, -1)
    # numpy's types say that counts are whole, which they are not with weights.
    return means.astype(np.float64), products.astype(np.float64)
