"""The terms of an anchored map: what is kept of the start's, and what the labels change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from calibrank._internal.arguments import instance, listed
from calibrank._internal.segment_keys import encode_columns
from calibrank._internal.validation import Floats, Ids, IdsLike, ids
from calibrank.anchoring.position import fit_position
from calibrank.composition import refusal
from calibrank.errors import DataError
from calibrank.evidence import Evidence
from calibrank.maps import (
    CalibrationMap,
    FitRecord,
    LevelTerm,
    PiecewiseCurve,
    PositionTerm,
    SmoothTerm,
    Term,
)
from calibrank.maps.targets.numpy import NumpyTarget
from calibrank.model import joint, named
from calibrank.summary import Summary
from calibrank.tables import Frame, Interactions, alike, as_interactions
from calibrank.terms import Group, Level, Position, Smooth, TermSpec
from calibrank.terms.level import Start, fit_levels, sums_by_level
from calibrank.terms.rows import fit_rows

POPULARITY = "item_popularity"
ACTIVITY = "user_activity"


class Anchored(NamedTuple):
    """A map before it is anchored, its curve after, and how much of its terms is kept."""

    start: CalibrationMap
    piecewise: PiecewiseCurve
    record: FitRecord
    factor: float

    @property
    def curve(self) -> CalibrationMap:
        """The anchored map of the score alone."""
        return CalibrationMap(self.piecewise, self.record)

    @property
    def kept(self) -> tuple[Term, ...]:
        """The levels and functions of the start, times the factor."""
        kept = [term for term in self.start.terms if not isinstance(term, PositionTerm)]
        return tuple(scaled(term, self.factor) for term in kept)


def start_log_odds(fitted: CalibrationMap, scores: Floats, columns: Any) -> tuple[Floats, bool]:
    """What the levels and functions of a map add to its log odds, and whether it has any."""
    inputs = fitted.inputs(columns, len(scores))
    found = np.zeros(len(scores))
    has_terms = False
    for term, x in zip(fitted.terms, inputs, strict=True):
        if not isinstance(term, PositionTerm):
            curve = fitted.curve.log_odds_on(NumpyTarget(), scores)
            found += term.on(NumpyTarget(), scores, curve, x)
            has_terms = True
    return found, has_terms


def anchored_terms(
    anchored: Anchored,
    terms: Sequence[TermSpec],
    scores: Floats,
    evidence: Evidence,
    columns: Any,
    population: Any,
) -> CalibrationMap:
    """The anchored curve with the terms of the start and further ones, as far as labels support."""
    specs = _specs(anchored.start, terms)
    if not specs:
        return anchored.curve
    changed = [spec for spec in specs if not isinstance(spec, Position)]
    result = anchored.curve
    if changed:
        result = _fit(anchored, joint(changed), scores, evidence, columns)
    others = result.log_odds(scores, columns) - result.curve.log_odds(scores)
    for spec in specs:
        if isinstance(spec, Position):
            labels = (scores, evidence, columns, others)
            term = fit_position(spec, anchored.piecewise, *labels, population)
            result = replace(result, terms=(*result.terms, term))
    record = anchored.start.record
    recipe = record.recipe and " + ".join([record.recipe, *map(repr, terms)])
    name = named(record.method, terms)
    return replace(result, record=replace(result.record, method=name, recipe=recipe))


def _specs(start: CalibrationMap, terms: Sequence[TermSpec]) -> list[TermSpec]:
    """The terms of the start and the further ones, which must be of other columns."""
    specs = [_spec_of(term) for term in start.terms]
    for spec in terms:
        instance("a term", spec, TermSpec, 'E.g. Level("country").')
        if isinstance(spec, Group):
            raise refusal("Group", "anchor")
        specs.append(spec)
    names = [name for spec in specs for name in spec.columns]
    if len(set(names)) < len(names):
        raise DataError("terms", "be of different columns", listed(names))
    return specs


def _spec_of(term: Term) -> TermSpec:
    if isinstance(term, LevelTerm):
        # Levels without slopes keep none, and a straight line stays one.
        return Level(*term.columns, slopes=None if term.slope_errors else False)
    if isinstance(term, SmoothTerm):
        return Smooth(term.column, *((2,) if len(term.knots) == 2 else ()))
    return Position(term.columns[0], term.n)  # type: ignore[attr-defined]  # the third kind


def _fit(
    anchored: Anchored,
    specs: Sequence[Level | Smooth],
    scores: Floats,
    evidence: Evidence,
    columns: Any,
) -> CalibrationMap:
    """Shrunk deviations from what is kept of the start: of one level from sums, else of rows."""
    kept = anchored.kept
    only = specs[0] if len(specs) == 1 else None
    if isinstance(only, Level):
        encoded = encode_columns(only.columns, columns, len(scores))
        summary = Summary.of(scores, evidence)
        sums = sums_by_level(only, scores, evidence, encoded, summary)
        levels = [term for term in anchored.start.terms if isinstance(term, LevelTerm)]
        start = Start(levels[0], anchored.factor) if levels else None
        return fit_levels(anchored.curve, sums, only, start)
    offset = np.zeros(len(scores))
    curve = anchored.curve.curve.log_odds_on(NumpyTarget(), scores)
    for term in kept:
        offset += term.on(NumpyTarget(), scores, curve, term.read(columns, len(scores)))
    fitted = fit_rows(anchored.curve, specs, scores, evidence, columns, offset=offset)
    expected = {term.columns: term for term in kept}
    terms = [_sum(expected.get(term.columns), term) for term in fitted.terms]
    return replace(fitted, terms=tuple(terms))


def scaled(term: Term, factor: float) -> Term:
    """A level or a function times a factor."""
    if isinstance(term, SmoothTerm):
        values = tuple(factor * value for value in term.values)
        return replace(term, values=values, errors=tuple(factor * each for each in term.errors))
    if not isinstance(term, LevelTerm):
        return term
    return replace(
        term,
        intercepts=tuple(factor * each for each in term.intercepts),
        slopes=tuple(max(1 + factor * (each - 1), 1e-3) for each in term.slopes),
        errors=tuple(factor * each for each in term.errors),
        spreads=tuple(factor * each for each in term.spreads),
        typical=factor * term.typical,
        slope_errors=term.slope_errors and term.slope_errors.scaled(factor),
    )


def _sum(first: Term | None, second: Term) -> Term:
    """The sum of two terms of the same column."""
    if isinstance(first, SmoothTerm) and isinstance(second, SmoothTerm):
        knots = np.union1d(first.knots, second.knots)
        values = np.zeros(len(knots))
        squares = np.zeros(len(knots))
        for term in (first, second):
            values += np.interp(knots, term.knots, term.values)
            if term.errors:
                squares += np.interp(knots, term.knots, term.errors) ** 2
        numbers = [tuple(each.tolist()) for each in (knots, values, np.sqrt(squares))]
        return SmoothTerm(second.column, *numbers)
    if isinstance(first, LevelTerm) and isinstance(second, LevelTerm):
        return _sum_of_levels(first, second)
    return second


def _sum_of_levels(first: LevelTerm, second: LevelTerm) -> LevelTerm:
    """The start's levels plus deviations: a level without a deviation has that of its parent."""
    keys = list(dict.fromkeys([*second.keys, *first.keys]))
    keys.sort(key=lambda key: (len(key), key))
    intercepts, slopes, errors, rows, nodes = [], [], [], [], []
    for key in keys:
        one, two = first.node(key), second.node(key)
        a = first.intercepts[one - 1] if one else first.typical
        b = second.intercepts[two - 1] if two else second.typical
        intercepts.append(a + b)
        slopes.append(first.slopes[one - 1] if one else 1.0)
        is_known = two and second.keys[two - 1] == key
        error = first.errors[one - 1] if one else 0.0
        errors.append(float(np.hypot(error, second.errors[two - 1] if two else 0.0)))
        rows.append(second.rows[two - 1] if is_known else 0)
        nodes.append(one)
    return LevelTerm(
        second.columns,
        tuple(keys),
        tuple(intercepts),
        tuple(slopes),
        tuple(errors),
        tuple(rows),
        spreads=tuple(np.hypot(first.spreads, second.spreads).tolist()),
        typical=first.typical + second.typical,
        # Deviations of rows have no slopes.
        slope_errors=first.slope_errors and first.slope_errors.take(nodes),
    )


def count_columns(log: Interactions | Frame, users: IdsLike, items: IdsLike) -> dict[str, Floats]:
    """Columns for `anchor` and `predict`: how many positives of a log each item and user has.

    They are logarithms of 1 plus the count; a user or item that is not in the log has 0 positives.

    >>> log = Interactions(users=["ann", "ann", "bob"], items=[7, 9, 7])
    >>> columns = count_columns(log, users=["ann", "new"], items=[7, 8])
    >>> {name: np.expm1(column).round().tolist() for name, column in columns.items()}
    {'item_popularity': [2.0, 0.0], 'user_activity': [2.0, 0.0]}
    """
    table = as_interactions(log)
    liked = table.labels == 1
    asked = ids("items", items)
    return {
        POPULARITY: _log_counts("items", table.items[liked], asked),
        ACTIVITY: _log_counts("users", table.users[liked], ids("users", users, len(asked))),
    }


def _log_counts(name: str, logged: Ids, asked: Ids) -> Floats:
    # Comparing text with numbers would silently match nothing.
    if (logged.dtype.kind in "iuf") != (asked.dtype.kind in "iuf"):
        raise DataError(
            name, f"be ids as in the log ({logged.dtype})", asked.dtype, "Convert them."
        )
    if not len(logged):
        return np.zeros(len(asked))
    logged, asked = alike(name, [logged, asked])
    known, counts = np.unique(logged, return_counts=True)
    rows = np.minimum(np.searchsorted(known, asked), len(known) - 1)
    return np.log1p(np.where(known[rows] == asked, counts[rows], 0.0))


def default_terms(fitted: CalibrationMap, given: Sequence[str]) -> list[Smooth]:
    """Smooth terms of the columns of `count_columns` that are given and not terms already."""
    names = set(given) - set(fitted.columns)
    return [Smooth(name) for name in (POPULARITY, ACTIVITY) if name in names]
