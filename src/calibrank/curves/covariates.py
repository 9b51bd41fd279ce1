"""Calibration with covariates: log odds are a curve of the score plus a function of each column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from calibrank._internal.arguments import instance, shown, whole
from calibrank._internal.validation import Floats, IdsLike, Numbers, ids, score_column
from calibrank.curves._covariate_columns import (
    CategoryBlock,
    CategoryColumn,
    Column,
    NumberBlock,
    read_columns,
)
from calibrank.curves._design import Design, Group
from calibrank.curves._ridge import Solution, fit_ridge
from calibrank.curves.calibrator import Calibrator
from calibrank.curves.parametric import Gaussian
from calibrank.curves.segments import column_names
from calibrank.errors import DataError
from calibrank.evidence import Evidence, Labels, as_evidence
from calibrank.maps import AdditiveMap, CalibrationMap, CategoryTerm, FitRecord, Term
from calibrank.maps.targets.numpy import NumpyTarget
from calibrank.summary import Summary

MOST_ROWS = 20_000_000
"""All rows of a fit are in memory: scores, evidence and features, 1 to 2 GB for this many."""


@dataclass(frozen=True, slots=True)
class Covariates:
    """Log odds `intercept + slope * curve(score) + f(column) + ...`, fitted with shrinkage.

    `columns` name a few features, such as the log popularity of the item, the activity of the user
    or a country. A column of numbers gets a smooth function (linear between at most `knots`
    quantiles, constant beyond them), or a straight line with `smooth=False`. A column of text, or
    one that is named in `categories`, gets a number per category; a category that was not seen in
    the fit adds nothing. How far a function deviates from 0 and from a line, and how much
    categories differ, is chosen by marginal likelihood. The curve is that of `base`, rescaled.

    For equal features, probabilities increase with the score. **The order between users changes,
    and the order within a user's list does too if a feature varies by item.** With
    `keep_list_order`, `fit` takes `lists` (the user of each row) and refuses features that vary
    within a list; `list_means` makes them constant.

    >>> rng = np.random.default_rng(0)
    >>> scores, activity = rng.normal(size=5000), rng.normal(size=5000)
    >>> labels = rng.random(5000) < 1 / (1 + np.exp(1 - scores - activity))
    >>> fitted = Covariates("activity").fit(scores, labels, {"activity": activity})
    >>> fitted.predict([0.0, 0.0], {"activity": [-1.0, 1.0]}).round(1).tolist()
    [0.1, 0.5]
    """

    columns: tuple[str, ...]
    base: Calibrator = field(default_factory=Gaussian)
    smooth: bool = True
    knots: int = 8
    keep_list_order: bool = False
    categories: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", column_names(self.columns, "columns"))
        instance("base", self.base, Calibrator, "E.g. Gaussian().")
        object.__setattr__(self, "knots", whole("knots", self.knots, 3, 50))
        instance("smooth", self.smooth, bool)
        instance("keep_list_order", self.keep_list_order, bool)
        object.__setattr__(self, "categories", _category_names(self.categories))
        for name in self.categories:
            if name not in self.columns:
                raise DataError(f"categories must be among the columns, got {shown(name)}.")

    def fit(
        self,
        scores: Numbers,
        labels: Labels,
        features: Any,
        lists: IdsLike | None = None,
    ) -> AdditiveMap:
        """Fit on scores, labels or evidence, and a mapping (or dataframe) of columns."""
        array = score_column(scores)[0].astype(np.float64)
        evidence = as_evidence(labels, len(array))
        columns = self.read(features, len(array), lists)
        base = self.base.fit_summary(Summary.of(array, evidence))
        return self.fit_columns(base, array, evidence, columns)

    def read(self, features: Any, rows: int, lists: IdsLike | None = None) -> list[Column]:
        """The columns of features, checked."""
        if rows > MOST_ROWS:
            raise DataError(
                f"a fit with covariates must have at most {MOST_ROWS:,} rows, which are all in "
                f"memory, got {rows:,}. Fit on a random sample of them, or use Segments."
            )
        columns = read_columns(self.columns, self.categories, features, rows)
        if self.keep_list_order:
            _require_constant(columns, lists)
        return columns

    def fit_columns(
        self,
        base: CalibrationMap,
        scores: Floats,
        evidence: Evidence,
        columns: Sequence[Column],
        *,
        shrink_curve: bool = False,
    ) -> AdditiveMap:
        """Add functions of columns to a map.

        With `shrink_curve`, the intercept and the slope of its log odds are shrunk towards what
        they are, as is right where the map was fitted to more than these rows.
        """
        log_odds = np.asarray(base.log_odds_on(NumpyTarget(), scores), dtype=np.float64)
        positive = np.asarray(evidence.positive, dtype=np.float64)
        total = np.asarray(evidence.total, dtype=np.float64)
        numbers: list[NumberBlock] = []
        categories: list[CategoryBlock] = []
        for column in columns:
            if isinstance(column, CategoryColumn):
                categories.append(column.block())
            else:
                numbers.append(NumberBlock.of(column, total, self.knots, smooth=self.smooth))
        blocks: list[NumberBlock | CategoryBlock] = [*numbers, *categories]
        # Around the mean, a change of the slope leaves the level as it is.
        center = float(total @ log_odds / total.sum()) if shrink_curve else 0.0
        groups = _groups(blocks, shrink_curve=shrink_curve)
        codes = [block.codes for block in categories]
        design = Design(log_odds - center, numbers, codes, groups)
        offset: Floats | float = log_odds if shrink_curve else 0.0
        solution = fit_ridge(design, positive, total, offset)
        by_name = _terms(blocks, solution.coefficients)
        change = float(solution.coefficients[1])
        return AdditiveMap(
            method=f"{base.method} with {', '.join(self.columns)}",
            base=base,
            intercept=float(solution.coefficients[0]) - change * center,
            slope=change + (1.0 if shrink_curve else 0.0),
            terms=tuple(by_name[name] for name in self.columns),
            record=_record(base, solution),
        )


def _category_names(categories: object) -> tuple[str, ...]:
    """The names of the columns that are categories, of which there may be none."""
    if not isinstance(categories, str | tuple | list):
        raise DataError(
            f"categories must be a tuple of column names, got {shown(categories)}. Use e.g. ()."
        )
    return column_names(categories, "categories") if categories else ()


def _groups(blocks: Sequence[NumberBlock | CategoryBlock], *, shrink_curve: bool) -> list[Group]:
    """Coefficients that share a prior: the line of a term, its deviations, all categories."""
    groups = [Group(slice(0, 1)), Group(slice(1, 2))] if shrink_curve else []
    start = 2
    for block in blocks:
        groups += block.groups(start)
        start += block.width
    return groups


def _terms(
    blocks: Sequence[NumberBlock | CategoryBlock], coefficients: Floats
) -> dict[str, Term | CategoryTerm]:
    terms: dict[str, Term | CategoryTerm] = {}
    start = 2
    for block in blocks:
        terms[block.name] = block.term(coefficients[start : start + block.width])
        start += block.width
    return terms


def _record(base: CalibrationMap, solution: Solution) -> FitRecord:
    return replace(
        base.record,
        loss=solution.loss,
        residual=solution.residual,
        iterations=solution.iterations,
        at_bound=(),
    )


def list_means(values: Numbers, lists: IdsLike) -> Floats:
    """The mean of a feature over each row's list, which keeps the order within the list.

    >>> list_means([1.0, 3.0, 5.0], ["a", "a", "b"]).tolist()
    [2.0, 2.0, 5.0]
    """
    array = np.asarray(values, dtype=np.float64)
    _, codes = np.unique(ids("lists", lists, len(array)), return_inverse=True)
    sums = np.bincount(codes, array)
    means: Floats = (sums / np.bincount(codes))[codes]
    return means


def varying_columns(columns: Sequence[Column], lists: IdsLike) -> list[str]:
    """The names of the features that vary within a list, so that they change its order."""
    varying = []
    for column in columns:
        codes = column.codes()
        names = ids("lists", lists, len(codes))
        _, first, places = np.unique(names, return_index=True, return_inverse=True)
        if not (codes == codes[first][places]).all():
            varying.append(column.name)
    return varying


def _require_constant(columns: Sequence[Column], lists: IdsLike | None) -> None:
    if lists is None:
        raise DataError(
            "lists must be given with keep_list_order, got none. Pass the user of each row."
        )
    varying = varying_columns(columns, lists)
    if varying:
        raise DataError(
            f"feature {varying[0]!r} must be constant within a list to keep its order, got values "
            "that differ. Use its mean per list, or let lists change their order."
        )
