"""Maps as one SQL expression, without user-defined functions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from calibrank._validation import LARGEST_SCORE
from calibrank.errors import DataError
from calibrank.maps import CalibrationMap, LogisticMap, RescaleMap
from calibrank.maps.basis import NumpyOps
from calibrank.maps.targets.target import probability

_SUM, _PRODUCT, _ATOM = range(3)  # how tightly a piece of text holds together


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one engine writes names, numbers and the functions we need."""

    quote: str  # twice inside a quoted name stands for itself
    as_double: str
    double: Callable[[float], str]
    least: str = "LEAST"
    greatest: str = "GREATEST"
    underflows: bool = False  # a product that rounds to 0 is an error

    def name(self, column: str) -> str:
        return self.quote + column.replace(self.quote, 2 * self.quote) + self.quote


@dataclass(frozen=True, slots=True)
class _BigQuery(Dialect):
    def name(self, column: str) -> str:
        return "`" + column.replace("\\", "\\\\").replace("`", "\\`") + "`"


def _with_exponent(number: float) -> str:
    """Every digit, and an exponent: without one DuckDB reads a decimal, SQLite perhaps an integer."""
    text = repr(number).removesuffix(".0")
    return text if "e" in text else f"{text}e0"


def _with_suffix(number: float) -> str:
    return repr(number).removesuffix(".0") + "D"


DIALECTS: dict[str, Dialect] = {
    "spark": Dialect("`", "DOUBLE({})", _with_suffix),
    "duckdb": Dialect('"', "{}::DOUBLE", _with_exponent),
    "postgresql": Dialect('"', "{}::float8", _with_exponent, underflows=True),
    # A misspelt "name" is a text to SQLite, a misspelt `name` an error. A cast would turn any text into a number; a
    # plus takes a column's type away, so that texts compare as what they are: beyond every number, no scores.
    "sqlite": Dialect("`", "+{}", _with_exponent, least="MIN", greatest="MAX"),
    "bigquery": _BigQuery("`", "CAST({} AS FLOAT64)", _with_exponent),
}
"""The engines `to_sql` writes for, by name."""


def to_sql(fitted: CalibrationMap, dialect: str, score: str = "score") -> str:
    """The probability as one SQL expression of a column; NULL where the score is NULL, NaN or beyond +-1e30.

    Dialects are spark, duckdb, postgresql, sqlite and bigquery. The column's name is quoted, whatever is in it.

    >>> from calibrank import MinMax
    >>> to_sql(MinMax().fit([1.0, 2.0, 5.0], [0, 0, 1]), "sqlite", score="rank score")
    'CASE WHEN +`rank score` BETWEEN -1e+30 AND 1e+30 THEN MAX(MIN((+`rank score` - 1e0) / 4e0, 1e0), 0e0) END'
    """
    if dialect not in DIALECTS:
        raise DataError(f"dialect must be one of {', '.join(DIALECTS)}, got {dialect!r}.")
    if not score or "\0" in score:
        raise DataError(f"score must be a column's name, got {score!r}.")
    chosen = DIALECTS[dialect]
    column = Piece(chosen.as_double.replace("{}", chosen.name(score)), _ATOM, chosen)
    fitted, argument = _above_underflow(fitted, column) if chosen.underflows else (fitted, column)
    result = probability(fitted, argument, _Sql(chosen), "sql")
    bounds = f"{chosen.double(-LARGEST_SCORE)} AND {chosen.double(LARGEST_SCORE)}"
    return f"CASE WHEN {column.text} BETWEEN {bounds} THEN {result.text} END"


def _above_underflow(fitted: CalibrationMap, score: "Piece") -> tuple[CalibrationMap, "Piece"]:
    """A map and score whose differences are 0, or large enough that their products do not round to 0.

    Only near an end at 0 can a difference be smaller. Adding a grain and taking it away leaves multiples of the
    grain's last digit there, 1e-116 of the range, and any larger score as it was.
    """
    if not isinstance(fitted, LogisticMap | RescaleMap):
        return fitted, score
    grain = max(1e-100 * (fitted.high - fitted.low), 1e-300)
    low, high = (0.0 if abs(end) < 1e20 * grain else end for end in (fitted.low, fitted.high))
    if low and high:
        return fitted, score
    return replace(fitted, low=low, high=high), score.raised(grain)


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of SQL, with the arithmetic that joins pieces and what is known of its value.

    What changes nothing (plus 0, times 1) is left out.
    """

    text: str
    rank: int
    dialect: Dialect
    low: float = -inf
    high: float = inf

    def within(self, low: float, high: float) -> "Piece":
        """The same piece where it is known to lie in [low, high]."""
        return replace(self, low=low, high=high)

    def raised(self, grain: float) -> "Piece":
        """Plus and minus a grain, as text: never simplified."""
        return self._of(f"{self.text} + {self._number(grain)} - {self._number(grain)}", _SUM)

    def __add__(self, other: "Piece | float") -> "Piece":
        if isinstance(other, Piece):
            return self._of(f"{self.text} + {other._held(_PRODUCT)}", _SUM)
        if other == 0:
            return self
        text = f"{self.text} {'-' if other < 0 else '+'} {self._number(abs(other))}"
        return self._of(text, _SUM).within(self.low + other, self.high + other)

    def __radd__(self, other: float) -> "Piece":
        return (
            self
            if other == 0
            else self._of(f"{self._number(other)} + {self._held(_PRODUCT)}", _SUM)
        )

    def __sub__(self, other: "Piece | float") -> "Piece":
        if isinstance(other, Piece):
            return self._of(f"{self.text} - {other._held(_PRODUCT)}", _SUM)
        return self + -other

    def __rsub__(self, other: float) -> "Piece":
        return self._of(f"{self._number(other)} - {self._held(_PRODUCT)}", _SUM)

    def __mul__(self, other: "Piece | float") -> "Piece":
        if other is self:
            return self._of(f"POWER({self.text}, {self._number(2)})", _ATOM)
        if isinstance(other, Piece):
            return self._of(f"{self._held(_PRODUCT)} * {other._held(_ATOM)}", _PRODUCT)
        if other in {1, -1}:
            return self if other == 1 else self._of(f"-{self._held(_ATOM)}", _PRODUCT)
        return self._of(f"{self._number(other)} * {self._held(_ATOM)}", _PRODUCT)

    __rmul__ = __mul__

    def __truediv__(self, other: float) -> "Piece":
        return (
            self
            if other == 1
            else self._of(f"{self._held(_PRODUCT)} / {self._number(other)}", _PRODUCT)
        )

    def __rtruediv__(self, other: float) -> "Piece":
        return self._of(f"{self._number(other)} / {self._held(_ATOM)}", _PRODUCT)

    def _of(self, text: str, rank: int) -> "Piece":
        return Piece(text, rank, self.dialect)

    def _held(self, rank: int) -> str:
        return self.text if self.rank >= rank else f"({self.text})"

    def _number(self, number: float) -> str:
        return self.dialect.double(float(number))


@dataclass(frozen=True, slots=True)
class _Sql:
    """`Target` for SQL text. Where a piece is known to be a number, so is what becomes of it."""

    dialect: Dialect

    def place(self, score: Piece, low: float, width: float) -> Piece:
        return (score - low) / width

    def log_odds(self, fitted: LogisticMap, score: Piece) -> Piece:
        """A branch each below, within and beyond the range: what is 0 or constant there falls away."""
        low, high = fitted.low, fitted.high
        below, within, above = (
            fitted.log_odds_on(score.within(*ends), self).text
            for ends in ((-inf, low), (low, high), (high, inf))
        )
        first, second = (f"{score.text} < {self.dialect.double(end)}" for end in (low, high))
        return self._atom(
            f"CASE WHEN {first} THEN {below} WHEN {second} THEN {within} ELSE {above} END"
        )

    def log(self, x: Piece | float) -> Piece | float:
        return self._call("LN", x) if isinstance(x, Piece) else float(NumpyOps().log(np.array(x)))

    def softplus(self, x: Piece | float) -> Piece | float:
        if not isinstance(x, Piece):
            return float(NumpyOps().softplus(np.array(x)))
        # log(1 + e) is 2 atanh(e / (2 + e)), which keeps every digit of a small e; few engines have log1p.
        grown = self._call("EXP", self._call(self.dialect.least, self._call("ABS", x), 700.0))
        return self._call(self.dialect.greatest, x, 0.0) + 2.0 * self._call(
            "ATANH", 1.0 / (2.0 * grown + 1.0)
        )

    def sigmoid(self, x: Piece) -> Piece:
        # Some engines refuse an exponential that overflows, PostgreSQL one that underflows.
        held = self._call(self.dialect.greatest, self._call(self.dialect.least, x, 700.0), -700.0)
        return 1.0 / (1.0 + self._call("EXP", held * -1.0))

    def minimum(self, x: Piece | float, bound: float) -> Piece | float:
        if not isinstance(x, Piece):
            return min(x, bound)
        if x.high <= bound or x.low >= bound:
            return x if x.high <= bound else bound
        return self._call(self.dialect.least, x, bound)

    def maximum(self, x: Piece | float, bound: float) -> Piece | float:
        if not isinstance(x, Piece):
            return max(x, bound)
        if x.low >= bound or x.high <= bound:
            return x if x.low >= bound else bound
        return self._call(self.dialect.greatest, x, bound)

    def steps(self, score: Piece, edges: Sequence[float], values: Sequence[float]) -> Piece:
        """A balanced tree of CASE: thousands of steps are a dozen deep."""
        if not edges:
            return self._atom(self.dialect.double(values[0]))
        middle = len(edges) // 2
        below = self.steps(score, edges[:middle], values[: middle + 1])
        above = self.steps(score, edges[middle + 1 :], values[middle + 1 :])
        edge = self.dialect.double(edges[middle])
        return self._atom(
            f"CASE WHEN {score.text} < {edge} THEN {below.text} ELSE {above.text} END"
        )

    def _call(self, function: str, *arguments: Piece | float) -> Piece:
        texts = (x.text if isinstance(x, Piece) else self.dialect.double(x) for x in arguments)
        return self._atom(f"{function}({', '.join(texts)})")

    def _atom(self, text: str) -> Piece:
        return Piece(text, _ATOM, self.dialect)
