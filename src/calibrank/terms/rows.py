"""Fit smooth terms and levels jointly, from rows in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from calibrank._internal.segment_keys import Key
from calibrank._internal.validation import Floats, IdsLike, Numbers, add_up, ids
from calibrank.errors import DataError, FitError
from calibrank.evidence import Evidence
from calibrank.maps import CalibrationMap, LevelTerm, SmoothTerm, Term
from calibrank.maps.level import SlopeErrors
from calibrank.maps.targets.numpy import NumpyTarget
from calibrank.terms._blocks import NumberBlock, levels_of, with_slopes
from calibrank.terms._design import Design, Group
from calibrank.terms._ridge import Solution, fit_ridge
from calibrank.terms.spec import Level, Smooth

MOST_ROWS = 20_000_000
"""All rows of a fit are in memory: scores, evidence and columns, 1 to 2 GB for this many."""


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
        raise DataError(
            "a fit of these terms",
            f"have at most {MOST_ROWS:,} rows, which are all in memory",
            f"{len(scores):,}",
            "Fit on a random sample of them, or use a Level alone.",
        )
    log_odds = np.asarray(fitted.curve.log_odds_on(NumpyTarget(), scores), dtype=np.float64)
    positive = np.asarray(evidence.positive, dtype=np.float64)
    total = np.asarray(evidence.total, dtype=np.float64)
    is_change = offset is not None
    # Around the mean, a change of a slope leaves the level as it is.
    mean = float(total @ log_odds / total.sum())
    center = mean if is_change else 0.0
    numbers = [NumberBlock.of(each, columns, total) for each in specs if isinstance(each, Smooth)]
    levels = levels_of([each for each in specs if isinstance(each, Level)], columns, len(total))
    levels = with_slopes(levels, None if is_change else log_odds - mean)
    design = Design(log_odds - center, numbers, levels, is_change=is_change)
    solution = fit_ridge(design, positive, total, 0.0 if offset is None else log_odds + offset)
    if solution.loss < 0:
        raise FitError(
            "the log loss",
            "be 0 or more",
            (
                f"{solution.loss:.4f}: the evidence has more positive than total mass, and "
                "no finite best fit exists"
            ),
            "Use positive_ips, or Level alone.",
        )
    change = float(solution.coefficients[1])
    slope = change + (1.0 if is_change else 0.0)
    curve = fitted.curve.moved(float(solution.coefficients[0]) - change * center, slope)
    record = replace(
        fitted.record,
        loss=solution.loss,
        residual=solution.residual,
        iterations=solution.iterations,
        at_bound=(),
    )
    turn = _Turn(float(solution.coefficients[0]) + slope * mean, slope)
    terms: list[Term] = []
    for spec in specs:
        found = list(zip(design.groups, solution.sds, strict=True))
        own = [(group, sd) for group, sd in found if getattr(group.block, "spec", None) is spec]
        if isinstance(spec, Smooth):
            terms.append(_smooth(own[0][0], solution))
        else:
            terms.append(_levels(spec, own, solution, total, turn))
    return CalibrationMap(curve, record, tuple(terms))


class _Turn(NamedTuple):
    """Where slopes of levels change nothing, and the slope that they change."""

    middle: float
    slope: float


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
    spec: Level, own: Sequence[tuple[Group, float]], solution: Solution, total: Floats, turn: _Turn
) -> LevelTerm:
    """The sum of the changes of each nested column, as one term."""
    slopes = {each[0].block.keys: each for each in own if each[0].are_slopes}
    intercepts = [each for each in own if not each[0].are_slopes]
    keys: list[Key] = []
    parts: list[Floats] = []
    rows: list[int] = []
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
        rows += np.bincount(block.codes, minlength=block.width).tolist()
        sds.append((sd, slope_sd))
    at_middle, changes, variances, slope_variances, covariances = np.hstack(parts)
    changes = changes / turn.slope
    spreads, slope_spreads = np.array(sds).T
    of = SlopeErrors(
        turn.middle,
        tuple((np.sqrt(slope_variances) / turn.slope).tolist()),
        tuple((covariances / turn.slope).tolist()),
        tuple((slope_spreads / turn.slope).tolist()),
    )
    return LevelTerm(
        columns=spec.columns,
        keys=tuple(keys),
        intercepts=tuple((at_middle - changes * turn.middle).tolist()),
        slopes=tuple((1 + changes).tolist()),
        errors=tuple(np.sqrt(variances).tolist()),
        rows=tuple(rows),
        spreads=tuple(spreads.tolist()),
        slope_errors=of if slope_spreads.any() else None,
    )


def _numbers(group: Group, slopes: Group | None, solution: Solution, total: Floats) -> Floats:
    """By level: intercept, slope, their variances and covariance."""
    place = group.place
    masses = add_up(group.block.codes, total, group.block.width)
    # The intercept of the curve is that of the mean row: levels are known relative to it.
    weights = masses / masses.sum()
    contrasts = solution.posterior.contrasts
    numbers = np.zeros((5, group.block.width))
    numbers[0] = solution.coefficients[place]
    numbers[2] = contrasts(place, place, weights)
    if slopes is not None:
        numbers[1] = solution.coefficients[slopes.place]
        numbers[3] = contrasts(slopes.place, slopes.place, weights)
        numbers[4] = contrasts(place, slopes.place, weights)
    return numbers


def list_means(values: Numbers, lists: IdsLike) -> Floats:
    """The mean of a column over each row's list, which keeps the order within the list.

    >>> list_means([1.0, 3.0, 5.0], ["a", "a", "b"]).tolist()
    [2.0, 2.0, 5.0]
    """
    array = np.asarray(values, dtype=np.float64)
    _, codes = np.unique(ids("lists", lists, len(array)), return_inverse=True)
    sums = add_up(codes, array)
    means: Floats = (sums / np.bincount(codes))[codes]
    return means
