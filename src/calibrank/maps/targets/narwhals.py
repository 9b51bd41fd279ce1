"""Maps on dataframes of any library, through narwhals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import narwhals as nw

from calibrank._internal.arguments import listed, text
from calibrank._internal.validation import LARGEST_SCORE
from calibrank.errors import DataError
from calibrank.maps.score_shift import warn_if_shifted
from calibrank.maps.targets.target import Target, group_by_parent

if TYPE_CHECKING:
    from calibrank.maps.calibration_map import CalibrationMap

# exp(700) is about 1e304, just within float64; beyond, the sigmoid is 0 or 1 to 300 digits.
_LARGEST_EXPONENT = 700.0


class NarwhalsTarget(Target):
    """Dataframe expressions of float64 columns."""

    def log(self, x: nw.Expr) -> nw.Expr:
        return x.log()

    def softplus(self, x: nw.Expr) -> nw.Expr:
        small = (x.abs() * -1).exp()
        rounded = small + 1.0
        # log(1 + small) without log1p: the rounding error of 1 + small cancels in the quotient
        # (Kahan).
        exact = rounded.log() * small / (rounded - 1.0)
        log1p = nw.when(rounded == 1.0).then(small).otherwise(exact)
        return x.clip(lower_bound=0.0) + log1p

    def sigmoid(self, x: nw.Expr) -> nw.Expr:
        bounded = x.clip(lower_bound=-_LARGEST_EXPONENT, upper_bound=_LARGEST_EXPONENT)
        return 1.0 / ((bounded * -1).exp() + 1.0)

    def minimum(self, x: nw.Expr, bound: float) -> nw.Expr:
        return x.clip(upper_bound=bound)

    def maximum(self, x: nw.Expr, bound: float) -> nw.Expr:
        return x.clip(lower_bound=bound)

    def steps(
        self,
        score: nw.Expr,
        edges: Sequence[float],
        values: Sequence[float],
    ) -> nw.Expr:
        """A balanced tree of comparisons."""
        if not edges:
            return score * 0.0 + values[0]
        middle = len(edges) // 2
        below = self.steps(score, edges[:middle], values[: middle + 1])
        above = self.steps(score, edges[middle + 1 :], values[middle + 1 :])
        return nw.when(score < edges[middle]).then(below).otherwise(above)

    def by_segment(
        self,
        segment: Sequence[nw.Expr],
        keys: Sequence[tuple[str, ...]],
        values: Sequence[float],
    ) -> nw.Expr:
        children = group_by_parent(keys)

        def of_parent(parent: tuple[str, ...], fallback: float) -> nw.Expr:
            column = segment[min(len(parent), len(segment) - 1)]
            branches = []
            for name, node in children.get(parent, []):
                branches.append((name, of_parent((*parent, name), values[node])))
            return _choose(column, branches, nw.lit(float(fallback)))

        return of_parent((), values[0])

    def where_valid(self, score: nw.Expr, formula: Callable[[nw.Expr], nw.Expr]) -> nw.Expr:
        # Some engines order NaN above every number, in others no comparison with it holds: it is
        # invalid in both. A condition without an alternative is null.
        valid = (score >= -LARGEST_SCORE) & (score <= LARGEST_SCORE)
        return nw.when(valid).then(formula(score))


def _choose(column: nw.Expr, branches: Sequence[tuple[str, nw.Expr]], fallback: nw.Expr) -> nw.Expr:
    """A balanced tree: a chain of thousands of conditions would be as deep as it is long."""
    if not branches:
        return fallback
    if len(branches) == 1:
        name, value = branches[0]
        return nw.when(column == name).then(value).otherwise(fallback)
    middle = len(branches) // 2
    first = _choose(column, branches[:middle], fallback)
    second = _choose(column, branches[middle:], fallback)
    names = [name for name, _ in branches[:middle]]
    return nw.when(column.is_in(names)).then(first).otherwise(second)


def _feature(fitted: CalibrationMap, name: str) -> nw.Expr | list[nw.Expr]:
    """A number, or a category as `by_segment` takes it."""
    if name in fitted.category_columns:
        return [nw.col(name).cast(nw.String)]
    return nw.col(name).cast(nw.Float64)


def transform(
    fitted: CalibrationMap,
    frame: Any,
    score: str,
    to: str,
) -> Any:
    """The frame with a column of probabilities, which stays an expression if the frame is lazy."""
    try:
        wrapped = nw.from_native(frame)
    except TypeError:
        raise DataError(
            "frame must be a dataframe of pandas, polars, pyarrow, duckdb or another library that "
            f"narwhals supports, got {type(frame).__name__}."
        ) from None
    text("score", score, "It names a column.")
    text("to", to, "It names a column.")
    names = wrapped.collect_schema().names()
    if score not in names:
        raise DataError(
            f"frame must have a column {score!r}, got {listed(names)}. Name it with score=..."
        )
    for name in (*fitted.segment_columns, *fitted.feature_columns):
        if name not in names:
            raise DataError(f"frame must have the column {name!r} of the map, got {listed(names)}.")
    if to in names:
        raise DataError(
            f"frame must not have a column {to!r} already, got {listed(names)}. "
            "Name another with to=..., or drop it first."
        )
    if isinstance(wrapped, nw.LazyFrame):
        texts = [nw.col(name).cast(nw.String) for name in fitted.segment_columns]
        features = [_feature(fitted, name) for name in fitted.feature_columns]
        segment = texts or features or None
        scores = nw.col(score).cast(nw.Float64)
        expression = fitted.where_valid(NarwhalsTarget(), scores, segment)
        return wrapped.with_columns(expression.alias(to)).to_native()
    scores = wrapped[score].to_numpy()
    probabilities = fitted.predict_rows(scores, lambda name: wrapped[name].to_numpy())
    # From here: this function, transform of the map, and then the caller.
    warn_if_shifted(fitted.record, scores, stacklevel=4)
    column = nw.new_series(to, probabilities, backend=wrapped.implementation)
    return wrapped.with_columns(column).to_native()
