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
from calibrank.terms._blocks import Block, LevelBlock, NumberBlock, blocks_of
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
    blocks = blocks_of(specs, columns, total, None if is_change else log_odds - mean)
    numbers = [block for block in blocks if isinstance(block, NumberBlock)]
    codes = [block.codes for block in blocks if isinstance(block, LevelBlock)]
    places = _places(blocks)
    groups = [Group(slice(0, 1)), Group(slice(1, 2))] if is_change else []
    starts: list[int] = []
    for block, place in zip(blocks, places, strict=True):
        starts.append(len(groups))
        groups += block.groups(place.start)
    design = Design(log_odds - center, numbers, codes, groups)
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
    found = list(zip(blocks, places, starts, strict=True))
    turn = _Turn(float(solution.coefficients[0]) + slope * mean, slope)
    terms = [_term(spec, found, solution, total, turn) for spec in specs]
    return CalibrationMap(curve, record, tuple(terms))


class _Turn(NamedTuple):
    """Where slopes of levels change nothing, and the slope that they change."""

    middle: float
    slope: float


def _places(blocks: Sequence[Block]) -> list[slice]:
    """Where the coefficients of each block are, after the intercept and the slope."""
    ends = 2 + np.cumsum([block.width for block in blocks])
    return [
        slice(int(end) - block.width, int(end)) for end, block in zip(ends, blocks, strict=True)
    ]


def _term(
    spec: Level | Smooth,
    found: Sequence[tuple[Block, slice, int]],
    solution: Solution,
    total: Floats,
    turn: _Turn,
) -> Term:
    own = [each for each in found if each[0].spec is spec]
    if isinstance(spec, Smooth):
        ((block, place, _),) = own
        return _smooth(block, place, solution)  # type: ignore[arg-type]  # of a smooth term
    own.sort(key=lambda each: len(each[0].keys[0]))  # type: ignore[union-attr]  # of levels
    return _levels(spec, own, solution, total, turn)


def _smooth(block: NumberBlock, place: slice, solution: Solution) -> SmoothTerm:
    values = block.to_values @ solution.coefficients[place]
    covariance = solution.covariance.corner[place, place]
    variances = ((block.to_values @ covariance) * block.to_values).sum(axis=1)
    errors = np.sqrt(np.maximum(variances, 0))
    numbers = [tuple(each.tolist()) for each in (block.knots, values, errors)]
    return SmoothTerm(block.spec.column, *numbers)


def _levels(
    spec: Level,
    own: Sequence[tuple[Any, slice, int]],
    solution: Solution,
    total: Floats,
    turn: _Turn,
) -> LevelTerm:
    """The sum of the changes of each nested column, as one term."""
    slopes = {block.keys: (place, group) for block, place, group in own if block.has_slopes}
    keys: list[Key] = []
    parts: list[Floats] = []
    rows: list[int] = []
    sds = []
    for block, place, group in own:
        if block.has_slopes:
            continue
        of_slopes, slope_group = slopes.get(block.keys, (None, None))
        numbers = _numbers(block, place, of_slopes, solution, total)
        if parts:
            # A level has the changes of its parents as well.
            numbers += parts[-1][:, _parents(block.keys, keys)]
        parts.append(numbers)
        keys = block.keys
        rows += np.bincount(block.codes.codes, minlength=block.width).tolist()
        sds.append((solution.sds[group], 0.0 if slope_group is None else solution.sds[slope_group]))
    intercepts, changes, variances, slope_variances, covariances = np.hstack(parts)
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
        keys=tuple(key for block, _, _ in own if not block.has_slopes for key in block.keys),
        intercepts=tuple((intercepts - changes * turn.middle).tolist()),
        slopes=tuple((1 + changes).tolist()),
        errors=tuple(np.sqrt(variances).tolist()),
        rows=tuple(rows),
        spreads=tuple(spreads.tolist()),
        slope_errors=of if slope_spreads.any() else None,
    )


def _numbers(
    block: LevelBlock, place: slice, slopes: slice | None, solution: Solution, total: Floats
) -> Floats:
    """By level: intercept, slope, their variances and covariance."""
    masses = add_up(block.codes.codes, total, block.width)
    # The intercept of the curve is that of the mean row: levels are known relative to it.
    weights = masses / masses.sum()
    numbers = np.zeros((5, block.width))
    numbers[0] = solution.coefficients[place]
    numbers[2] = solution.covariance.contrasts(place, place, weights)
    if slopes is not None:
        numbers[1] = solution.coefficients[slopes]
        numbers[3] = solution.covariance.contrasts(slopes, slopes, weights)
        numbers[4] = solution.covariance.contrasts(place, slopes, weights)
    return numbers


def _parents(keys: Sequence[Key], above: Sequence[Key]) -> list[int]:
    """The number of each key's parent."""
    numbers = {key: number for number, key in enumerate(above)}
    return [numbers[key[:-1]] for key in keys]


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
