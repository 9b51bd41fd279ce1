"""Fit smooth terms and levels jointly, from rows in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from calibrank._internal.segment_keys import Key
from calibrank._internal.validation import Floats, IdsLike, Numbers, add_up, ids
from calibrank.errors import DataError, FitError
from calibrank.evidence import Evidence
from calibrank.maps import CalibrationMap, LevelTerm, SmoothTerm, Term
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
            got=f"{len(scores):,}",
            remedy="Fit on a random sample of them, or use a Level alone.",
        )
    log_odds = np.asarray(fitted.curve.log_odds_on(NumpyTarget(), scores), dtype=np.float64)
    positive = np.asarray(evidence.positive, dtype=np.float64)
    total = np.asarray(evidence.total, dtype=np.float64)
    blocks = blocks_of(specs, columns, total)
    is_change = offset is not None
    # Around the mean, a change of the slope leaves the level as it is.
    center = float(total @ log_odds / total.sum()) if is_change else 0.0
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
            got=(
                f"{solution.loss:.4f}: the evidence has more positive than total mass, and "
                "no finite best fit exists"
            ),
            remedy="Use positive_ips, or Level alone.",
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
    terms = [_term(spec, found, solution, total) for spec in specs]
    return CalibrationMap(curve, record, tuple(terms))


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
) -> Term:
    own = [each for each in found if each[0].spec is spec]
    if isinstance(spec, Smooth):
        ((block, place, _),) = own
        return _smooth(block, place, solution)  # type: ignore[arg-type]  # of a smooth term
    own.sort(key=lambda each: len(each[0].keys[0]))  # type: ignore[union-attr]  # of levels
    return _levels(spec, own, solution, total)


def _smooth(block: NumberBlock, place: slice, solution: Solution) -> SmoothTerm:
    values = block.to_values @ solution.coefficients[place]
    covariance = solution.covariance.corner[place, place]
    variances = ((block.to_values @ covariance) * block.to_values).sum(axis=1)
    errors = np.sqrt(np.maximum(variances, 0))
    numbers = [tuple(each.tolist()) for each in (block.knots, values, errors)]
    return SmoothTerm(block.spec.column, *numbers)


def _levels(
    spec: Level, own: Sequence[tuple[Any, slice, int]], solution: Solution, total: Floats
) -> LevelTerm:
    """The sum of the changes of each nested column, as one term."""
    intercepts: dict[Key, float] = {}
    squares: dict[Key, float] = {}
    rows: dict[Key, int] = {}
    spreads = []
    for block, place, group in own:
        masses = add_up(block.codes.codes, total, block.width)
        # The intercept of the curve is that of the mean row: levels are known relative to it.
        variances = solution.covariance.contrasts(place, masses / masses.sum())
        coefficients = solution.coefficients[place]
        counts = np.bincount(block.codes.codes, minlength=block.width)
        columns = [each.tolist() for each in (coefficients, variances, counts)]
        found = zip(block.keys, *columns, strict=True)
        for key, coefficient, variance, count in found:
            intercepts[key] = coefficient + intercepts.get(key[:-1], 0.0)
            squares[key] = variance + squares.get(key[:-1], 0.0)
            rows[key] = count
        spreads.append(solution.sds[group])
    return LevelTerm(
        columns=spec.columns,
        keys=tuple(intercepts),
        intercepts=tuple(intercepts.values()),
        slopes=(1.0,) * len(intercepts),
        errors=tuple(np.sqrt(list(squares.values())).tolist()),
        rows=tuple(rows.values()),
        spreads=tuple(spreads),
    )


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
