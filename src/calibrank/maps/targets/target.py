"""What a target must offer for every map to run on it, and each kind of map in those words."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np

from calibrank.errors import DataError
from calibrank.maps.basis import NumpyOps, Ops, Softplus
from calibrank.maps.calibration_map import CalibrationMap
from calibrank.maps.logistic import LogisticMap
from calibrank.maps.rescale import RescaleMap
from calibrank.maps.step import StepMap

Dtype: TypeAlias = Literal["float32", "float64"]

_NARROWEST = 1e-30  # a float32 score of 1 is then placed at 1e30, which float32 still holds
_LARGEST_TERM = 300.0  # float32 keeps 3e-5 of it


class Target(Ops, Protocol):
    """`Ops`, and the three things a map does besides."""

    def place(self, score: Any, low: float, width: float) -> Any:
        """(score - low) / width, keeping what the score has of precision."""

    def log_odds(self, fitted: LogisticMap, score: Any) -> Any: ...

    def sigmoid(self, x: Any) -> Any: ...

    def steps(self, score: Any, edges: Sequence[float], values: Sequence[float]) -> Any:
        """`values[k]`, where k is how many edges are not above the score."""


def probability(fitted: CalibrationMap, score: Any, target: Target, name: str) -> Any:
    """The map's probability as the target says it; `name` is the target's, for errors."""
    if isinstance(fitted, LogisticMap):
        return target.sigmoid(target.log_odds(fitted, score))
    if isinstance(fitted, StepMap):
        return target.steps(score, fitted.edges, fitted.values)
    if isinstance(fitted, RescaleMap):
        placed = target.place(score, fitted.low, fitted.high - fitted.low)
        return target.maximum(target.minimum(placed, 1.0), 0.0)
    raise unsupported(fitted, name)


def log_odds_by_place(fitted: LogisticMap, score: Any, target: Target) -> Any:
    """The log odds by a score's place in the range.

    Every basis but softplus sees a score only by its place. Taking it first keeps float32 exact to its own last
    digits where scores are many times larger than their differences.
    """
    if isinstance(fitted.basis, Softplus):
        return fitted.log_odds_on(score, target)
    placed = target.place(score, fitted.low, fitted.high - fitted.low)
    return replace(fitted, low=0.0, high=1.0).log_odds_on(placed, target)


def in_two(number: float) -> tuple[float, float]:
    """A float32 and the rest: subtracting one, then the other, costs float32 scores nothing."""
    near = float(np.float32(number))
    return near, number - near


def ceilings(edges: Sequence[float], dtype: Dtype) -> "np.ndarray[Any, np.dtype[np.floating[Any]]]":
    """Edges in a dtype, rounded up: a score of that dtype reaches the rounded edge just when it reaches the edge."""
    exact = np.array(edges, dtype=np.float64)
    rounded = exact.astype(dtype)
    return np.where(rounded < exact, np.nextafter(rounded, np.inf, dtype=dtype), rounded).astype(
        dtype
    )


def require_dtype(fitted: CalibrationMap, dtype: str) -> Dtype:
    """The dtype by name, if the map can be told in it."""
    if dtype not in {"float32", "float64"}:
        raise DataError(f"dtype must be float32 or float64, got {dtype!r}.")
    if dtype == "float64":
        return "float64"
    remedy = "Use dtype float64, sql or json."
    if isinstance(fitted, LogisticMap | RescaleMap) and fitted.high - fitted.low < _NARROWEST:
        width = fitted.high - fitted.low
        raise DataError(
            f"the map's range must be at least {_NARROWEST} wide for float32, got {width}. {remedy}"
        )
    if isinstance(fitted, LogisticMap) and largest_term(fitted) > _LARGEST_TERM:
        words = f"the terms of a map's log odds must stay within {_LARGEST_TERM} for float32"
        raise DataError(
            f"{words}, got {largest_term(fitted):.3g}: their sum would be mostly rounding. {remedy}"
        )
    return "float32"


def largest_term(fitted: LogisticMap) -> float:
    """The largest number that is added up to the log odds: rounding is relative to it."""
    ends = np.array([fitted.low, fitted.high])
    generators = fitted.basis.generators(ends, fitted.low, fitted.high, NumpyOps())
    terms = [np.abs(c * g) for c, g in zip(fitted.coefficients, generators, strict=True)]
    return max(abs(fitted.intercept), float(np.max(terms)))


def unsupported(fitted: CalibrationMap, name: str) -> DataError:
    """Say which maps a target takes, and which targets take this one."""
    kinds = ", ".join(kind.kind for kind in (LogisticMap, StepMap, RescaleMap))
    return DataError(
        f"map must be one of {kinds} for {name}, got {fitted.kind}. Targets that take it: json."
    )
