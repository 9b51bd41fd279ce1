"""Maps on dataframes, through narwhals: eager frames by numpy, lazy ones as an expression that stays lazy."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from calibrank.errors import DataError

if TYPE_CHECKING:
    import narwhals as nw

    from calibrank.maps.calibration_map import CalibrationMap


class NarwhalsOps:
    """`Ops` for dataframe expressions."""

    def log(self, x: "nw.Expr") -> "nw.Expr":
        return x.log()

    def softplus(self, x: "nw.Expr") -> "nw.Expr":
        import narwhals as nw  # noqa: PLC0415  (only dataframes need it)

        small = (x.abs() * -1).exp()
        more = small + 1.0
        # log(1 + small), exact where 1 + small rounds: the error of `more` cancels (Kahan).
        rest = nw.when(more == 1.0).then(small).otherwise(more.log() * small / (more - 1.0))
        return x.clip(lower_bound=0.0) + rest

    def minimum(self, x: "nw.Expr", bound: float) -> "nw.Expr":
        return x.clip(upper_bound=bound)

    def maximum(self, x: "nw.Expr", bound: float) -> "nw.Expr":
        return x.clip(lower_bound=bound)


def sigmoid(log_odds: "nw.Expr") -> "nw.Expr":
    """1 / (1 + exp(-z)), held where the exponential is finite."""
    held = log_odds.clip(lower_bound=-700.0, upper_bound=700.0)
    return 1.0 / ((held * -1).exp() + 1.0)


def steps(score: "nw.Expr", edges: Sequence[float], values: Sequence[float]) -> "nw.Expr":
    """A step function as a tree of comparisons."""
    import narwhals as nw  # noqa: PLC0415  (only dataframes need it)

    if not edges:
        return score * 0.0 + values[0]
    middle = len(edges) // 2
    below = steps(score, edges[:middle], values[: middle + 1])
    above = steps(score, edges[middle + 1 :], values[middle + 1 :])
    return nw.when(score < edges[middle]).then(below).otherwise(above)


def transform(fitted: "CalibrationMap", frame: Any, score: str, to: str) -> Any:
    """The frame with a column of probabilities more."""
    import narwhals as nw  # noqa: PLC0415  (only dataframes need it)

    try:
        wrapped = nw.from_native(frame)
    except TypeError:
        kinds = "pandas, polars, pyarrow, duckdb or another that narwhals knows"
        raise DataError(
            f"frame must be a dataframe of {kinds}, got {type(frame).__name__}."
        ) from None
    names = wrapped.collect_schema().names()
    if score not in names:
        raise DataError(
            f"frame must have a column {score!r}, got {', '.join(names)}. Name it with score=..."
        )
    if isinstance(wrapped, nw.LazyFrame):
        return wrapped.with_columns(
            fitted.expression(nw.col(score).cast(nw.Float64)).alias(to)
        ).to_native()
    values = fitted.predict(wrapped[score].to_numpy())
    column = nw.new_series(to, values, backend=wrapped.implementation)
    return wrapped.with_columns(column).to_native()
