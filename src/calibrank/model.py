"""Models: a calibrator plus terms, with the same `fit`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from calibrank._internal.arguments import instance, listed
from calibrank._internal.segment_keys import column_of, encode_columns
from calibrank._internal.threads import meanwhile
from calibrank._internal.validation import Floats, Numbers, column, score_column
from calibrank.composition import refusal
from calibrank.errors import DataError
from calibrank.evidence import Evidence, Labels, as_evidence, weighted
from calibrank.maps import CalibrationMap
from calibrank.summary import Summary
from calibrank.summary.by_segment import SegmentSums
from calibrank.terms import Group, Level, Position, Smooth, TermSpec
from calibrank.terms.group import GroupFit
from calibrank.terms.level import fit_levels, sums_by_level
from calibrank.terms.rows import fit_rows


class CurveSpec(Protocol):
    """What a model needs of its calibrator."""

    @property
    def name(self) -> str:
        """The name of the method."""

    @property
    def candidates_by_group(self) -> tuple[Any, ...]:
        """The curves that are averaged where the level differs by group."""

    def fit_rows(self, scores: Floats, evidence: Evidence) -> tuple[CalibrationMap, Summary]:
        """Fit on checked rows, and return their summary too."""

    def fit_summary(self, summary: Summary) -> CalibrationMap:
        """Fit on pooled evidence."""


@dataclass(frozen=True, slots=True, repr=False)
class Model:
    """A curve plus terms: log odds are `curve(score) + term(row) + ...`, fitted jointly.

    >>> from calibrank import Gaussian, Level, Smooth
    >>> model = Gaussian() + Level("country") + Smooth("price")
    >>> model
    Gaussian() + Level('country') + Smooth('price')
    >>> rng = np.random.default_rng(0)
    >>> scores, price = rng.normal(size=4000), rng.normal(size=4000)
    >>> country = np.where(rng.random(4000) < 0.5, "NL", "DE")
    >>> labels = rng.random(4000) < 1 / (1 + np.exp(1 - scores - price - (country == "NL")))
    >>> fitted = model.fit(scores, labels, {"country": country, "price": price})
    >>> fitted.predict([0.0, 0.0], {"country": ["NL", "DE"], "price": [0.0, 0.0]}).round(1)
    array([0.5, 0.3])
    """

    curve: CurveSpec
    terms: tuple[TermSpec, ...]

    def __post_init__(self) -> None:
        for term in self.terms:
            instance("a term", term, TermSpec, 'E.g. Level("country").')
        names = [name for term in self.terms for name in term.columns]
        if len(set(names)) < len(names):
            raise DataError("terms", "be of different columns", listed(names))
        require_composable(self.terms)

    def __add__(self, term: TermSpec) -> Model:
        return Model(self.curve, (*self.terms, term))

    def __repr__(self) -> str:
        return " + ".join(map(repr, (self.curve, *self.terms)))

    @property
    def name(self) -> str:
        """The name of the method in tables and saved maps."""
        return named(self.curve.name, self.terms)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a fit needs."""
        return tuple(name for term in self.terms for name in term.columns)

    @property
    def level_alone(self) -> Level | None:
        """The level that is fitted from sums by level, where it is the only term."""
        only = self.terms[0] if len(self.terms) == 1 else None
        return only if isinstance(only, Level) else None

    @property
    def group(self) -> Group | None:
        """The groups whose levels are integrated out, if there are any."""
        return next((term for term in self.terms if isinstance(term, Group)), None)

    def fit(
        self,
        scores: Numbers,
        labels: Labels,
        columns: Any = None,
        sample_weight: Numbers | None = None,
    ) -> CalibrationMap:
        """Fit on scores, labels or evidence, and a mapping (or dataframe) of columns."""
        labels = weighted(labels, sample_weight)
        if columns is None:
            raise DataError("columns", f"have {listed(self.columns)}, which the terms need", "none")
        if self.group is not None:
            groups = column_of("columns", self.group.column, columns)
            fit = GroupFit(self.curve.candidates_by_group, self.group.folds)
            return self.recorded(fit.fit(scores, labels, groups))
        level = self.level_alone
        if level is not None:
            return self._fit_level(level, scores, labels, columns)
        array = score_column(scores)[0].astype(np.float64)
        evidence = as_evidence(labels, len(array))
        fitted, _ = self.curve.fit_rows(array, evidence)
        return self.fit_rows(fitted, array, evidence, columns)

    def _fit_level(
        self, level: Level, scores: Numbers, labels: Labels, columns: Any
    ) -> CalibrationMap:
        array = column("scores", scores)
        with meanwhile(partial(encode_columns, level.columns, columns, len(array))) as encoded:
            evidence = as_evidence(labels, len(array))
            fitted, summary = self.curve.fit_rows(array, evidence)
            sums = sums_by_level(level, array, evidence, encoded(), summary)
        return self.fit_sums(fitted, sums)

    def fit_sums(self, fitted: CalibrationMap, sums: SegmentSums) -> CalibrationMap:
        """Add the level to a map of the score, from sums of rows by level."""
        level = self.level_alone
        if level is None:
            raise DataError("sums", "go with one Level as the only term", self)
        sums.require(level.columns, fitted.record.evidence)
        return self.recorded(fit_levels(fitted, sums, level))

    def fit_rows(
        self, fitted: CalibrationMap, scores: Floats, evidence: Evidence, columns: Any
    ) -> CalibrationMap:
        """Add the terms to a map of the score, jointly, from rows."""
        return self.recorded(fit_rows(fitted, joint(self.terms), scores, evidence, columns))

    def sums(self, scores: Numbers, labels: Labels, columns: Any) -> SegmentSums:
        """Sums by level of some rows: they can be added, saved and loaded; see `fit_sums`.

        >>> from calibrank import Level, Platt
        >>> model = Platt() + Level("country")
        >>> rows = {"country": ["NL", "DE"] * 3}
        >>> scores, labels = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0], [0, 1, 0, 1, 0, 1]
        >>> sums = model.sums(scores, labels, rows) + model.sums(scores, labels, rows)
        >>> fitted = model.fit_sums(Platt().fit(scores * 2, labels * 2), sums)
        >>> fitted.terms[0].rows
        (6, 6)
        """
        level = self.level_alone
        if level is None:
            raise DataError("sums", "be of one Level as the only term", self)
        array = score_column(scores)[0]
        sums = SegmentSums(names=level.columns)
        encoded = encode_columns(level.columns, columns, len(array))
        sums.add(array, as_evidence(labels, len(array)), encoded)
        return sums

    def recorded(self, fitted: CalibrationMap) -> CalibrationMap:
        """A map with the name and the text of the model in its record."""
        name = named(fitted.method or self.curve.name, self.terms)
        recipe = " + ".join([fitted.record.recipe or repr(self.curve), *map(repr, self.terms)])
        return replace(fitted, record=replace(fitted.record, method=name, recipe=recipe))


def named(curve: str, terms: Sequence[TermSpec]) -> str:
    """The name of a method with terms."""
    return " + ".join([curve, *[term.name for term in terms]])


def joint(terms: Sequence[TermSpec]) -> list[Level | Smooth]:
    """The terms of a joint fit."""
    return [term for term in terms if isinstance(term, Level | Smooth)]


def require_composable(terms: Sequence[TermSpec]) -> None:
    """Raise a `DataError` if terms cannot be fitted together."""
    if any(isinstance(term, Position) for term in terms):
        raise refusal("Position", "a fit")
    if len(terms) > 1 and any(isinstance(term, Group) for term in terms):
        raise refusal("Group", "other terms")
