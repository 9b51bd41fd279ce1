"""Calibration with covariates: log odds are a curve of the score plus a function of each column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from calibrank._arguments import instance, whole
from calibrank._validation import Floats, IdsLike, Numbers, ids, score_column
from calibrank.calibrators._ridge import Design, fit_ridge
from calibrank.calibrators.calibrator import Calibrator
from calibrank.calibrators.parametric import Gaussian
from calibrank.calibrators.segments import column_names
from calibrank.errors import DataError
from calibrank.evidence import Labels, as_evidence
from calibrank.maps import AdditiveMap, CalibrationMap, Term
from calibrank.maps.additive import feature
from calibrank.maps.targets.numpy import NumpyTarget
from calibrank.summary import Summary


@dataclass(frozen=True, slots=True)
class Covariates:
    """Log odds `intercept + slope * curve(score) + f(column) + ...`, fitted with shrinkage.

    `columns` name a few numeric features, such as the log popularity of the item or the activity of
    the user. Each gets a smooth function (linear between at most `knots` quantiles, constant beyond
    them), or a straight line with `smooth=False`. How far a function deviates from 0 and from a
    line is chosen by marginal likelihood. The curve is that of `base`, rescaled.

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

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", column_names(self.columns))
        instance("base", self.base, Calibrator, "E.g. Gaussian().")
        object.__setattr__(self, "knots", whole("knots", self.knots, 3, 50))

    def fit(
        self,
        scores: Numbers,
        labels: Labels,
        features: Any,
        lists: IdsLike | None = None,
    ) -> AdditiveMap:
        """Fit on scores, labels or evidence, and a mapping (or dataframe) of numeric columns."""
        array = score_column(scores)[0].astype(np.float64)
        evidence = as_evidence(labels, len(array))
        columns = {name: feature(name, features, len(array)) for name in self.columns}
        if self.keep_list_order:
            _require_constant(columns, lists)
        base = self.base.fit_summary(Summary.of(array, evidence))
        positive = np.asarray(evidence.positive, dtype=np.float64)
        total = np.asarray(evidence.total, dtype=np.float64)
        return self._fit(base, array, columns, positive, total)

    def _fit(
        self,
        base: CalibrationMap,
        scores: Floats,
        columns: dict[str, Floats],
        positive: Floats,
        total: Floats,
    ) -> AdditiveMap:
        log_odds = np.asarray(base.log_odds_on(NumpyTarget(), scores), dtype=np.float64)
        blocks = [_Block.of(name, x, total, self) for name, x in columns.items()]
        design = Design([log_odds, *[block.columns for block in blocks]], self._groups(blocks))
        solution = fit_ridge(design, positive, total)
        terms = []
        start = 2
        intercept = float(solution.coefficients[0])
        for block in blocks:
            stop = start + block.columns.shape[1]
            values = block.to_values @ solution.coefficients[start:stop]
            terms.append(Term(block.name, tuple(block.knots.tolist()), tuple(values.tolist())))
            start = stop
        record = replace(
            base.record,
            loss=solution.loss,
            residual=solution.residual,
            iterations=solution.iterations,
            at_bound=(),
        )
        return AdditiveMap(
            method=f"{base.method} with {', '.join(columns)}",
            base=base,
            intercept=intercept,
            slope=float(solution.coefficients[1]),
            terms=tuple(terms),
            record=record,
        )

    def _groups(self, blocks: Sequence[_Block]) -> list[slice]:
        """Coefficients that share a prior: the line of each term, and its deviations from it."""
        groups = []
        start = 2
        for block in blocks:
            stop = start + block.columns.shape[1]
            groups.append(slice(start, start + 1))
            if stop > start + 1:
                groups.append(slice(start + 1, stop))
            start = stop
        return groups


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """The columns of one term: a line, and deviations with independent standard priors."""

    name: str
    knots: Floats
    columns: Floats
    to_values: Floats
    """From coefficients to the values at knots."""

    @classmethod
    def of(cls, name: str, x: Floats, total: Floats, settings: Covariates) -> _Block:
        levels = np.linspace(0, 1, settings.knots)
        knots = np.unique(np.quantile(x, levels, method="nearest"))
        if len(knots) < 2:
            raise DataError(f"feature {name!r} must differ from row to row, got only {x[0]:.6g}.")
        if not settings.smooth:
            knots = knots[[0, -1]]
        hats = _hat_functions(x, knots)
        to_values = knots[:, None]
        if len(knots) > 2:
            to_values = np.hstack([to_values, np.linalg.pinv(_second_differences(len(knots)))])
        # Centred, so that the intercept stays that of the mean row, and of unit spread.
        weights = total / total.sum()
        means = weights @ (hats @ to_values)
        to_values = to_values - means
        spreads = np.sqrt(weights @ (hats @ to_values) ** 2)
        spreads[1:] = max(float(spreads[1:].mean()), 1e-12) if len(spreads) > 1 else 1.0
        to_values = to_values / spreads
        return cls(name, knots, hats @ to_values, to_values)


def _hat_functions(x: Floats, knots: Floats) -> Floats:
    """The weight of each knot in linear interpolation at x, constant beyond the outer knots."""
    last = len(knots) - 2
    segment = np.clip(np.searchsorted(knots, x, side="right") - 1, 0, last)
    position = (x - knots[segment]) / (knots[segment + 1] - knots[segment])
    position = np.clip(position, 0, 1)
    hats = np.zeros((len(x), len(knots)))
    rows = np.arange(len(x))
    hats[rows, segment] = 1 - position
    hats[rows, segment + 1] += position
    return hats


def _second_differences(size: int) -> Floats:
    differences: Floats = np.diff(np.eye(size), n=2, axis=0)
    return differences


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


def _require_constant(columns: dict[str, Floats], lists: IdsLike | None) -> None:
    if lists is None:
        raise DataError(
            "lists must be given with keep_list_order, got none. Pass the user of each row."
        )
    for name, x in columns.items():
        means = list_means(x, lists)
        if not np.allclose(x, means, rtol=1e-9, atol=1e-12):
            raise DataError(
                f"feature {name!r} must be constant within a list to keep its order, got values "
                "that differ. Use list_means(values, lists), or keep_list_order=False."
            )
