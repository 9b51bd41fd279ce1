"""Maps as expressions of search engines: Vespa, Elasticsearch and OpenSearch, and Lucene."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from calibrank._internal.arguments import label
from calibrank._internal.validation import LARGEST_SCORE
from calibrank.composition import refusal
from calibrank.maps.basis import Linear
from calibrank.maps.calibration_map import CalibrationMap, require_map
from calibrank.maps.logistic import LogisticCurve
from calibrank.maps.targets.target import Target


@dataclass(frozen=True, slots=True)
class Language:
    """How one engine writes functions and conditions."""

    exp: str
    log: str
    absolute: str
    minimum: str
    maximum: str
    choice: str
    """With places for the condition and for both values."""


VESPA = Language("exp", "log", "fabs", "min", "max", "if ({}, {}, {})")
PAINLESS = Language(
    "Math.exp", "Math.log", "Math.abs", "Math.min", "Math.max", "(({}) ? ({}) : ({}))"
)


class SigmoidParameters(NamedTuple):
    """A sigmoid of Lucene: 1 / (1 + exp(-alpha * (score - beta)))."""

    alpha: float
    beta: float


def to_vespa(fitted: CalibrationMap, score: str = "firstPhase") -> str:
    """The probability as a Vespa ranking expression of a feature or function.

    Scores that are not valid (NaN, beyond +-1e30) get 0, because a rank score must be a number.

    >>> from calibrank import MinMax
    >>> to_vespa(MinMax().fit([1.0, 2.0, 5.0], [0, 0, 1]), "bm25(title)")[:54]
    'if (bm25(title) >= -1e+30 && bm25(title) <= 1e+30, max'
    """
    return _expression(fitted, score, VESPA)


def to_painless(fitted: CalibrationMap, score: str = "_score") -> str:
    """The probability as a Painless expression, for `script_score` of Elasticsearch and OpenSearch.

    Scores that are not valid get 0: these engines refuse scores that are no number.

    >>> from calibrank import Platt
    >>> fitted = Platt().fit([-1.0, 0.0, 1.0, 2.0], [0, 1, 0, 1])
    >>> to_painless(fitted).startswith("((_score >= -1e+30 && _score <= 1e+30) ? ")
    True
    """
    return _expression(fitted, score, PAINLESS)


def to_lucene(fitted: CalibrationMap) -> SigmoidParameters:
    """The parameters of a sigmoid of the score, where the map is one (`Platt`, `Temperature`).

    >>> from calibrank import Platt
    >>> alpha, beta = to_lucene(Platt().fit([-1.0, 0.0, 1.0, 2.0], [0, 1, 0, 1]))
    >>> round(beta, 6)
    0.5
    """
    require_map(fitted)
    curve = fitted.curve
    is_sigmoid = isinstance(curve, LogisticCurve) and isinstance(curve.basis, Linear)
    if fitted.terms:
        raise refusal("terms", "a search engine")
    if not is_sigmoid:
        raise refusal("a curve that is no sigmoid", "Lucene")
    low, high = fitted.span
    below, above = fitted.log_odds([low, high]).tolist()
    alpha = (above - below) / (high - low)
    return SigmoidParameters(alpha, low - below / alpha)


def _expression(fitted: CalibrationMap, score: str, language: Language) -> str:
    require_map(fitted)
    if fitted.terms:
        raise refusal("terms", "a search engine")
    target = ScriptTarget(language)
    given = Script(label("score", score, "It is an expression of the engine."))
    return str(fitted.where_valid(target, given))


@dataclass(frozen=True, slots=True)
class Script:
    """A piece of an expression; arithmetic is written with all parentheses."""

    text: str

    def __str__(self) -> str:
        return self.text

    def __add__(self, other: Script | float) -> Script:
        return Script(f"({self} + {_operand(other)})")

    def __radd__(self, other: float) -> Script:
        return Script(f"({_operand(other)} + {self})")

    def __sub__(self, other: Script | float) -> Script:
        return Script(f"({self} - {_operand(other)})")

    def __rsub__(self, other: float) -> Script:
        return Script(f"({_operand(other)} - {self})")

    def __mul__(self, other: Script | float) -> Script:
        return Script(f"({self} * {_operand(other)})")

    __rmul__ = __mul__

    def __truediv__(self, other: float) -> Script:
        return Script(f"({self} / {_operand(other)})")


def _operand(value: Script | float) -> str:
    if isinstance(value, Script):
        return value.text
    number = repr(float(value))
    # A minus after an operator would be read as another operator.
    return f"({number})" if number.startswith("-") else number


@dataclass(frozen=True, slots=True)
class ScriptTarget(Target):
    """Expressions of a search engine. Numbers are float64; exponentials may be infinite."""

    language: Language

    def log(self, x: Script) -> Script:
        return Script(f"{self.language.log}({x})")

    def softplus(self, x: Script) -> Script:
        rest = f"{self.language.exp}(-{self.language.absolute}({x}))"
        return self.maximum(x, 0.0) + Script(f"{self.language.log}(1.0 + {rest})")

    def sigmoid(self, x: Script) -> Script:
        return Script(f"(1.0 / (1.0 + {self.language.exp}(-({x}))))")

    def minimum(self, x: Script, bound: float) -> Script:
        return Script(f"{self.language.minimum}({x}, {_operand(bound)})")

    def maximum(self, x: Script, bound: float) -> Script:
        return Script(f"{self.language.maximum}({x}, {_operand(bound)})")

    def where_valid(
        self, score: Script, formula: Callable[[Script], Script], conditions: Sequence[Script] = ()
    ) -> Script:
        largest = repr(LARGEST_SCORE)
        is_valid = f"{score} >= -{largest} && {score} <= {largest}"
        return Script(self.language.choice.format(is_valid, formula(score), "0.0"))

    def steps(self, score: Script, edges: Sequence[float], values: Sequence[float]) -> Script:
        return Script(self._tree(score, edges, [_operand(value) for value in values]))

    def lines(
        self,
        score: Script,
        edges: Sequence[float],
        origins: Sequence[float],
        values: Sequence[float],
        slopes: Sequence[float],
    ) -> Script:
        """One tree whose leaves are straight lines, instead of one tree per number."""
        leaves = []
        for origin, value, slope in zip(origins, values, slopes, strict=True):
            leaves.append(str((score - origin) * slope + value))
        return Script(self._tree(score, edges, leaves))

    def _tree(self, score: Script, edges: Sequence[float], leaves: Sequence[str]) -> str:
        """A balanced tree of conditions: thousands of leaves are a dozen levels deep."""
        if not edges:
            return leaves[0]
        middle = len(edges) // 2
        below = self._tree(score, edges[:middle], leaves[: middle + 1])
        above = self._tree(score, edges[middle + 1 :], leaves[middle + 1 :])
        is_below = f"{score} < {_operand(edges[middle])}"
        return self.language.choice.format(is_below, below, above)
