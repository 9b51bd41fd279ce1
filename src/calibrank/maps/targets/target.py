"""The interface between maps and engines: each map states its formula once, each target runs it.

A map builds its probability from a few operations (`CalibrationMap.on(target, score)`), and a
target implements these operations for one engine. Neither knows the members on the other side.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np

from calibrank._internal.arguments import shown
from calibrank._internal.segment_keys import Key
from calibrank._internal.validation import Floats
from calibrank.errors import DataError

if TYPE_CHECKING:
    from calibrank._internal.rules import ColumnRule
    from calibrank.maps.calibration_map import CalibrationMap

Dtype: TypeAlias = Literal["float32", "float64"]
Unary: TypeAlias = Callable[[Any], Any]
"""An expression of a score."""
Lines: TypeAlias = tuple[Sequence[float], Sequence[float], Sequence[float]]
"""Origin, value and slope of each of several straight lines."""
Choice = TypeVar("Choice")

NARROWEST_FLOAT32_RANGE = 1e-30
"""The narrowest range in float32: a score of 1 is then placed at 1e30; float32 ends at 3e38."""

LARGEST_FLOAT32_TERM = 300.0
"""The largest term of log odds in float32, which rounds it by up to 3e-5."""


class UnsupportedOperationError(Exception):
    """A target cannot express an operation; its caller computes the map in another way."""


class Inner(NamedTuple):
    """The formula of a range: an expression of (target, score, low, high)."""

    formula: Callable[[Target, Any, float, float], Any]
    slopes: Callable[[float, float], tuple[float, float]]
    """Of the formula at low and at high."""
    scale_free: bool
    """Whether the formula depends on the position of the score in the range alone.

    A target may then evaluate it over [0, 1]: float32 loses the difference of scores that are many
    times larger than their range.
    """


class Target(Protocol):
    """The operations of one engine from which every map builds its formula.

    An expression is whatever the engine computes with: an array, a tensor, a column, a piece of
    SQL. Expressions support `+`, `-` and `*` with each other and with numbers, and division by a
    number.
    """

    normalizes: ClassVar[bool] = False
    """Whether `over_range` maps the range to [0, 1] first, which keeps float32 accurate."""
    dtype: Dtype = "float64"
    """The float type that the engine computes in."""

    @abstractmethod
    def log(self, x: Any) -> Any:
        """Natural logarithm."""

    @abstractmethod
    def softplus(self, x: Any) -> Any:
        """log(1 + exp(x)), accurate for every x."""

    @abstractmethod
    def sigmoid(self, x: Any) -> Any:
        """1 / (1 + exp(-x)), without overflow."""

    @abstractmethod
    def minimum(self, x: Any, bound: float) -> Any:
        """The smaller of an expression and a number."""

    @abstractmethod
    def maximum(self, x: Any, bound: float) -> Any:
        """The larger of an expression and a number."""

    @abstractmethod
    def steps(self, score: Any, edges: Sequence[float], values: Sequence[float]) -> Any:
        """`values[k]`, where k is the number of edges that are at most the score."""

    def where_valid(self, score: Any, formula: Unary, conditions: Sequence[Any] = ()) -> Any:
        """`formula(score)`, and no probability where the score or a condition is not valid.

        A score is not valid if `predict` refuses it: null, NaN, infinite, or beyond 1e30, as a
        padding value is. An engine with nulls returns null there, and NaN otherwise. Conditions are
        what `is_valid` and `is_level` return.
        """
        raise UnsupportedOperationError("this engine gets valid scores only")

    def is_valid(self, x: Any, rule: ColumnRule) -> Any:
        """Whether a number keeps a rule; null and NaN never do."""
        return rule.holds(x)

    def is_level(self, x: Any, count: int) -> Any:
        """Whether `x` can be looked up by `by_level` among so many keys; null never can."""
        raise UnsupportedOperationError("this engine has no levels")

    def by_level(self, x: Any, keys: Sequence[Key], values: Floats) -> Any:
        """`values[k]`, where `keys[k - 1]` is the longest key that matches the row, or k = 0.

        What `x` is depends on the engine: columns of text, or the number k itself.
        """
        raise UnsupportedOperationError("this engine has no levels")

    def scaled_by_level(
        self, curve: Any, x: Any, keys: Sequence[Key], intercepts: Floats, slopes: Floats
    ) -> Any:
        """`curve * slopes[k] + intercepts[k]`, with k as in `by_level`."""
        return curve * self.by_level(x, keys, slopes) + self.by_level(x, keys, intercepts)

    def lines(self, score: Any, edges: Sequence[float], lines: Lines) -> Any:
        """`values[k] + slopes[k] * (score - origins[k])`, with k as in `steps`.

        The difference to an origin nearby is small, so nothing cancels, unlike in a sum of hinge
        functions.
        """
        origins, values, slopes = lines
        # The line through another origin, which the float type has: the difference is then exact.
        exact = np.array(origins)
        near = exact.astype(self.dtype).astype(np.float64)
        shifted = np.array(values) + np.array(slopes) * (near - exact)
        origin = self.steps(score, edges, near.tolist())
        slope = self.steps(score, edges, slopes)
        return (score - origin) * slope + self.steps(score, edges, shifted.tolist())

    def place(self, score: Any, low: float, width: float) -> Any:
        """Position of a score in a range, (score - low) / width, with little rounding error.

        `low` is rarely a float32. Subtracting the nearest float32 is exact near `low` (Sterbenz),
        and what remains of `low` is then subtracted from a small number, where float32 has digits
        for it. Operations that change nothing are left out.
        """
        nearest = float(np.dtype(self.dtype).type(low))
        for part in (nearest, low - nearest):
            if part:
                score = score - part
        return score if width == 1 else score / width

    def over_range(self, score: Any, low: float, high: float, inner: Inner) -> Any:
        """A formula of a score within [low, high], and straight lines beyond."""
        formula, slopes, scale_free = inner
        if self.normalizes and scale_free:
            score, low, high = self.place(score, low, high - low), 0.0, 1.0
        inside = formula(self, self.maximum(self.minimum(score, high), low), low, high)
        below, above = slopes(low, high)
        result = inside + below * self.minimum(score - low, 0)
        return result + above * self.maximum(score - high, 0)


def broken_line(
    knots: Sequence[float], values: Sequence[float], end_slopes: Sequence[float]
) -> Lines:
    """Straight lines through the values at the knots, with given slopes beyond the outer ones."""
    inner = np.diff(values) / np.diff(knots)
    # The line below the first knot is measured from that knot, like the one above it.
    origins = (knots[0], *knots)
    return origins, (values[0], *values), (end_slopes[0], *inner.tolist(), end_slopes[1])


def _operation(operator: str, *, swapped: bool = False) -> Callable[[Any, Any], Any]:
    def apply(self: Any, other: Any) -> Any:
        left, right = (other, self) if swapped else (self, other)
        return self.binary(left, operator, right)

    return apply


class Expression(ABC):
    """A piece of a formula, where the engine has no operators: `binary` writes an operation."""

    @abstractmethod
    def binary(self, left: Any, operator: str, right: Any) -> Any:
        """The expression `left operator right`, one of which may be a number."""

    __add__ = _operation("+")
    __radd__ = _operation("+", swapped=True)
    __sub__ = _operation("-")
    __rsub__ = _operation("-", swapped=True)
    __mul__ = _operation("*")
    __rmul__ = _operation("*", swapped=True)
    __truediv__ = _operation("/")
    __rtruediv__ = _operation("/", swapped=True)


def nested_choices(
    edges: Sequence[float],
    leaves: Sequence[Choice],
    choice: Callable[[float, Choice, Choice], Choice],
) -> Choice:
    """The leaf whose number is that of the edges at or below the score, by bisection.

    `choice(edge, below, above)` chooses by whether the score is below an edge. The tree is
    balanced: thousands of leaves are a dozen levels deep.
    """
    if not edges:
        return leaves[0]
    middle = len(edges) // 2
    below = nested_choices(edges[:middle], leaves[: middle + 1], choice)
    above = nested_choices(edges[middle + 1 :], leaves[middle + 1 :], choice)
    return choice(edges[middle], below, above)


def group_by_parent(keys: Sequence[Key]) -> dict[Key, list[tuple[str, int]]]:
    """The last value and the number, from 1 on, of each key, by the values before it.

    >>> group_by_parent([("NL",), ("NL", "Delft")])
    {(): [('NL', 1)], ('NL',): [('Delft', 2)]}
    """
    children: dict[Key, list[tuple[str, int]]] = {}
    for node, key in enumerate(keys, start=1):
        children.setdefault(key[:-1], []).append((key[-1], node))
    return children


def free_names(existing: Sequence[str]) -> Iterator[str]:
    """Names for temporary columns, none of which exists."""
    stem = "_calibrank"
    while any(name.startswith(stem) for name in existing):
        stem = "_" + stem
    for number in count():
        yield f"{stem}_{number}"


def ceilings(edges: Sequence[float], dtype: Dtype) -> np.ndarray[Any, np.dtype[np.floating[Any]]]:
    """Edges rounded up to a dtype: its numbers compare with them as with the exact edges."""
    exact = np.array(edges, dtype=np.float64)
    rounded = exact.astype(dtype)
    above = np.nextafter(rounded, np.inf, dtype=dtype)
    return np.where(rounded < exact, above, rounded).astype(dtype)


def require_dtype(fitted: CalibrationMap, dtype: Any) -> Dtype:
    """The name of a dtype that a graph computes in, if the map is accurate in it.

    The dtypes of torch and NumPy stand for their names.
    """
    name = dtype.__name__ if isinstance(dtype, type) else str(dtype).removeprefix("torch.")
    if name == "float64":
        return "float64"
    if name != "float32":
        got = shown(dtype) if isinstance(dtype, str) else name
        raise DataError("dtype", "be float32 or float64", got)
    remedy = "Use dtype float64, sql or json."
    if fitted.narrowest < NARROWEST_FLOAT32_RANGE:
        rule = f"be at least {NARROWEST_FLOAT32_RANGE} wide for float32"
        raise DataError("the map's range", rule, fitted.narrowest, remedy)
    if fitted.largest_term > LARGEST_FLOAT32_TERM:
        rule = f"stay within {LARGEST_FLOAT32_TERM} for float32"
        raise DataError("the terms of log odds", rule, f"{fitted.largest_term:.3g}", remedy)
    return "float32"
