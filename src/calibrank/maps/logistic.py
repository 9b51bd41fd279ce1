"""Logistic maps: Platt, Temperature, Beta, Gaussian, Gamma and Gamma-Gaussian once fitted."""

from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from calibrank import _native
from calibrank._json import Fields
from calibrank._logit import expit
from calibrank._threads import in_threads, row_slices
from calibrank._validation import Floats, Numbers, floats, is_tensor
from calibrank.errors import DataError
from calibrank.maps.basis import (
    Basis,
    Linear,
    Log,
    LogQuadratic,
    NumpyOps,
    Ops,
    Quadratic,
    Softplus,
)
from calibrank.maps.calibration_map import CalibrationMap, Interval, blockwise, predict_tensor
from calibrank.maps.record import FitRecord
from calibrank.maps.targets.narwhals import NarwhalsOps, sigmoid

if TYPE_CHECKING:
    import narwhals as nw

_COMPILED_FROM = 3_000_000  # float32 scores: smaller tables are computed in float64


@dataclass(frozen=True, slots=True)
class LogisticMap(CalibrationMap):
    """Log odds `intercept + sum of coefficient * generator` on [low, high], straight lines beyond.

    No coefficient is negative and both ends slope upwards, so the map is strictly increasing everywhere.
    `covariance` is that of (intercept, *coefficients).
    """

    kind: ClassVar[str] = "logistic"

    method: str
    basis: Basis
    low: float
    high: float
    intercept: float
    coefficients: tuple[float, ...]
    covariance: tuple[tuple[float, ...], ...]
    record: FitRecord

    def __post_init__(self) -> None:
        size = len(self.basis.parameters)
        if not self.low < self.high:
            raise DataError(f"low must be below high, got {self.low} and {self.high}.")
        if len(self.coefficients) != size - 1 or min(self.coefficients) < 0:
            raise DataError(
                f"coefficients must be {size - 1} numbers, none negative, got {self.coefficients}."
            )
        if min(self.end_slopes) <= 0:
            raise DataError(f"the map must rise at both ends, got slopes {self.end_slopes}.")
        if len(self.covariance) != size or any(len(row) != size for row in self.covariance):
            raise DataError(f"covariance must be {size} x {size}, got {self.covariance}.")

    @property
    def end_slopes(self) -> tuple[float, float]:
        """The slope of the log odds at low and at high, with which they go on beyond."""
        slopes = self.basis.end_slopes(self.low, self.high)
        low, high = (
            sum(c * s for c, s in zip(self.coefficients, end, strict=True)) for end in slopes
        )
        return low, high

    @property
    def parameters(self) -> dict[str, float]:
        """The paper's parameters in score units, e.g. a, b, c of `a s^2 + b s + c`."""
        values = self.basis.natural(self.low, self.high) @ np.array(
            [self.intercept, *self.coefficients]
        )
        return dict(zip(self.basis.parameters, values.tolist(), strict=True))

    @property
    def standard_errors(self) -> dict[str, float]:
        """Standard errors of `parameters`, from the sandwich covariance."""
        natural = self.basis.natural(self.low, self.high)
        variances = np.diag(natural @ np.array(self.covariance) @ natural.T)
        return dict(
            zip(self.basis.parameters, np.sqrt(np.maximum(variances, 0)).tolist(), strict=True)
        )

    @property
    def span(self) -> tuple[float, float]:
        return self.low, self.high

    @property
    def description(self) -> str:
        return f"Log odds {self.basis.name} in the score on {self.low:.4g} to {self.high:.4g}, straight lines beyond."

    def log_odds_on(self, score: Any, ops: Ops) -> Any:
        """The log odds as an expression of any target that offers `Ops`."""
        inside = ops.maximum(ops.minimum(score, self.high), self.low)
        below, above = self.end_slopes
        return (
            self._inside(inside, ops)
            + below * ops.minimum(score - self.low, 0)
            + above * ops.maximum(score - self.high, 0)
        )

    def _inside(self, score: Any, ops: Ops) -> Any:
        """The log odds of a score within [low, high]."""
        result: Any = self.intercept
        for coefficient, generator in zip(
            self.coefficients, self.basis.generators(score, self.low, self.high, ops), strict=True
        ):
            result = generator * coefficient + result
        return result

    def predict(self, scores: Numbers) -> Floats:
        if is_tensor(scores):
            return cast("Floats", predict_tensor(self, scores))
        array = floats("scores", scores)
        large = array.dtype == np.float32 and array.size >= _COMPILED_FROM
        if large and _native.READY and isinstance(self.basis, Linear | Quadratic):
            result = self._predict_compiled(array)
            if result is not None:
                return result
        return blockwise(self._probabilities, array)

    predict.__doc__ = CalibrationMap.predict.__doc__

    def _predict_compiled(self, scores: Floats) -> Floats | None:
        """Probabilities in float32 at the speed of memory; None where a score is not one."""
        width = self.high - self.low
        curve = self.basis.natural(0.0, 1.0) @ np.array([self.intercept, *self.coefficients])
        a, b, c = (float(value) for value in (0.0, *curve)[-3:])
        below, above = (slope * width for slope in self.end_slopes)
        flat = np.require(scores, requirements=["C", "ALIGNED"]).reshape(-1)
        result = np.empty_like(flat)
        low, scale = self.low, 1 / width

        def part(rows: slice) -> bool:
            return _native.sigmoid_of_quadratic(
                flat[rows], low, scale, (a, b, c), (below, above), result[rows]
            )

        valid = all(in_threads(part, row_slices(len(flat))))
        return result.reshape(scores.shape) if valid else None

    def expression(self, score: "nw.Expr") -> "nw.Expr":
        return sigmoid(self.log_odds_on(score, NarwhalsOps()))

    def _log_odds(self, scores: Floats) -> Floats:
        result: Floats
        if scores.size and self.low <= scores.min() and scores.max() <= self.high:
            result = self._inside(
                scores, NumpyOps()
            )  # the same numbers, without looking beyond the ends
        else:
            result = self.log_odds_on(scores, NumpyOps())
        return result

    def _probabilities(self, scores: Floats) -> Floats:
        return expit(self._log_odds(scores))

    def _ends(self, scores: Floats, level: float) -> Interval:
        columns = self.gradient(scores)
        variance = np.einsum("in,ij,jn->n", columns, np.array(self.covariance), columns)
        reach = -NormalDist().inv_cdf((1 - level) / 2) * np.sqrt(np.maximum(variance, 0))
        middle = self._log_odds(scores)
        return Interval(expit(middle - reach), expit(middle + reach))

    def gradient(self, scores: Floats) -> Floats:
        """The log odds' slopes in (intercept, *coefficients): one line each, one column a score."""
        inside = np.clip(scores, self.low, self.high)
        generators = self.basis.generators(inside, self.low, self.high, NumpyOps())
        at_low, at_high = self.basis.end_slopes(self.low, self.high)
        below, above = np.minimum(scores - self.low, 0), np.maximum(scores - self.high, 0)
        rows = [
            g + low * below + high * above
            for g, low, high in zip(generators, at_low, at_high, strict=True)
        ]
        return np.array([np.ones_like(scores), *rows])

    def _content(self) -> dict[str, Any]:
        return {
            "basis": self.basis.settings(),
            "low": self.low,
            "high": self.high,
            "intercept": self.intercept,
            "coefficients": list(self.coefficients),
            "covariance": [value for row in self.covariance for value in row],
        }

    @classmethod
    def read(cls, method: str, fields: Fields, record: FitRecord) -> "LogisticMap":
        """Rebuild a saved map."""
        fields.only("basis", "low", "high", "intercept", "coefficients", "covariance")
        basis = _basis(fields.child("basis"))
        flat, size = fields.numbers("covariance"), len(basis.parameters)
        rows = tuple(tuple(flat[start : start + size]) for start in range(0, len(flat), size))
        coefficients = tuple(fields.numbers("coefficients"))
        low, high, intercept = (
            fields.number("low"),
            fields.number("high"),
            fields.number("intercept"),
        )
        return cls(method, basis, low, high, intercept, coefficients, rows, record)


def _basis(fields: Fields) -> Basis:
    plain: dict[str, Basis] = {basis.name: basis for basis in (Linear(), Quadratic(), Softplus())}
    shifted: dict[str, type[Log | LogQuadratic]] = {kind.name: kind for kind in (Log, LogQuadratic)}
    name = fields.text("name")
    if name in plain:
        fields.only("name")
        return plain[name]
    if name in shifted:
        fields.only("name", "margin")
        margin = fields.number("margin")
        if margin <= 0:
            raise DataError(f"{fields.where}, margin must be above 0, got {margin}.")
        return shifted[name](margin)
    raise DataError(
        f"{fields.where}, name must be one of {', '.join([*plain, *shifted])}, got {name!r}."
    )
