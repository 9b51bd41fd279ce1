"""Maps on dataframes of any library, through narwhals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import narwhals as nw

from calibrank._internal.arguments import listed, text
from calibrank._internal.segment_keys import Key, number_nodes
from calibrank._internal.validation import LARGEST_SCORE, Floats, as_frame
from calibrank.errors import DataError
from calibrank.maps.level import LevelTerm
from calibrank.maps.score_shift import ScoreComparison
from calibrank.maps.targets.target import Target, Unary, free_names, nested_choices

if TYPE_CHECKING:
    from calibrank.maps.calibration_map import CalibrationMap

Schema: TypeAlias = Mapping[str, nw.dtypes.DType]

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

    def steps(self, score: nw.Expr, edges: Sequence[float], values: Sequence[float]) -> nw.Expr:
        leaves = [score * 0.0 + value for value in values]
        return nested_choices(
            edges,
            leaves,
            lambda edge, below, above: nw.when(score < edge).then(below).otherwise(above),
        )

    def is_level(self, x: nw.Expr, count: int) -> nw.Expr:
        return ~x.is_null()

    def by_level(self, x: nw.Expr, keys: Sequence[Key], values: Floats) -> nw.Expr:
        default, *known = values.tolist()
        return _looked_up(x, range(1, len(keys) + 1), known, default, nw.Float64)

    def where_valid(
        self, score: nw.Expr, formula: Unary, conditions: Sequence[nw.Expr] = ()
    ) -> nw.Expr:
        # Some engines order NaN above every number, in others no comparison with it holds: it is
        # invalid in both. A condition without an alternative is null.
        valid = (score >= -LARGEST_SCORE) & (score <= LARGEST_SCORE)
        for condition in conditions:
            valid = valid & condition
        return nw.when(valid).then(formula(score))


def _looked_up(
    x: nw.Expr, old: Sequence[Any], new: Sequence[float], default: float, kind: Any
) -> nw.Expr:
    """The new value of each old one: a hash table, where a tree of conditions would be slow."""
    if not old:
        return nw.lit(default, kind)
    return x.replace_strict(list(old), list(new), default=default, return_dtype=kind)


def _with_level(
    frame: nw.LazyFrame[Any], term: LevelTerm, schema: Schema, names: Iterator[str]
) -> tuple[nw.LazyFrame[Any], nw.Expr]:
    """The frame with temporary columns, and the number of each row's level; null where missing."""
    numbers: dict[Key, int] = {(): 0} | number_nodes(term.keys)
    found = nw.lit(0)
    levels = [_level(name, schema[name]) for name in term.columns]
    for depth, level in enumerate(levels, start=1):
        # The number of the parent and the text name a level.
        of_depth = {key: number for key, number in numbers.items() if len(key) == depth}
        old = [f"{numbers[key[:-1]]}:{key[-1]}" for key in of_depth]
        named = nw.concat_str([found.cast(nw.String), level], separator=":")
        deeper = _looked_up(named, old, list(of_depth.values()), 0, nw.Int64)
        # A column of its own: an expression is computed, and its table sent, each time it is used.
        name = next(names)
        frame = frame.with_columns(deeper.alias(name))
        found = nw.when(nw.col(name) > 0).then(nw.col(name)).otherwise(found)
    present = nw.all_horizontal(*[~level.is_null() for level in levels], ignore_nulls=False)
    name = next(names)
    return frame.with_columns(nw.when(present).then(found).alias(name)), nw.col(name)


def _level(name: str, kind: nw.dtypes.DType) -> nw.Expr:
    """A column as the text of its levels: 1.0 is "1"; null where a number is not whole."""
    column = nw.col(name)
    if kind == nw.Boolean:
        text = nw.when(column).then(nw.lit("true")).otherwise(nw.lit("false"))
        return nw.when(~column.is_null()).then(text)
    if kind.is_integer() or kind in (nw.String, nw.Categorical, nw.Enum):
        return column.cast(nw.String)
    if not kind.is_numeric():
        raise DataError(
            f"column {name!r}",
            "hold text, whole numbers or booleans",
            kind,
            "Cast it to text first, as for the fit.",
        )
    number = column.cast(nw.Float64)
    # Larger ones stand for many whole numbers.
    is_whole = (number.abs() < float(2**53)) & (number == number.floor())
    return nw.when(is_whole).then(number).cast(nw.Int64).cast(nw.String)


def transform(fitted: CalibrationMap, frame: Any, score: str, to: str) -> Any:
    """The frame with a column of probabilities, which stays an expression if the frame is lazy."""
    wrapped = as_frame(frame)
    if wrapped is None:
        raise DataError(
            "frame",
            "be a dataframe of pandas, polars, pyarrow, duckdb or another library that narwhals "
            "supports",
            type(frame).__name__,
        )
    schema = wrapped.collect_schema()
    names = schema.names()
    for name in (text("score", score, "It names a column."), *fitted.columns):
        if name not in names:
            remedy = "Name it with score=..." if name == score else "The map needs it."
            raise DataError("frame", f"have a column {name!r}", listed(names), remedy)
    if text("to", to, "It names a column.") in names:
        remedy = "Name another with to=..., or drop it first."
        raise DataError("frame", f"not have a column {to!r} already", listed(names), remedy)
    if isinstance(wrapped, nw.LazyFrame):
        inputs = []
        temporary = free_names(names)
        for term in fitted.terms:
            if isinstance(term, LevelTerm):
                wrapped, x = _with_level(wrapped, term, schema, temporary)
            else:
                x = nw.col(term.columns[0]).cast(nw.Float64)
            inputs.append(x)
        scores = nw.col(score).cast(nw.Float64)
        expression = fitted.where_valid(NarwhalsTarget(), scores, inputs)
        return wrapped.with_columns(expression.alias(to)).select(*names, to).to_native()
    scores = wrapped[score].to_numpy()
    columns = {name: wrapped[name].to_numpy() for name in fitted.columns}
    probabilities = fitted.predict(scores, columns)
    comparison = ScoreComparison(fitted.record)
    comparison.add(scores)
    # From here: this function, transform of the map, and then the caller.
    comparison.warn(stacklevel=4)
    column = nw.new_series(to, probabilities, backend=wrapped.implementation)
    return wrapped.with_columns(column).to_native()
