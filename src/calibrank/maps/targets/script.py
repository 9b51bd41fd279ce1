"""Maps as one expression of a language like C: scripts of search engines, and CUDA."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from calibrank._internal.arguments import label
from calibrank._internal.validation import LARGEST_SCORE
from calibrank.composition import refusal
from calibrank.maps.calibration_map import CalibrationMap, require_map
from calibrank.maps.targets.target import (
    Expression,
    Lines,
    Target,
    Unary,
    UnsupportedOperationError,
    nested_choices,
)


@dataclass(frozen=True, slots=True)
class Language:
    """How one engine writes functions, conditions and numbers."""

    exp: str
    log: str
    absolute: str
    minimum: str
    maximum: str
    choice: str
    """With places for the condition and for both values."""
    number: str = "{}"
    invalid: str = "0.0"
    """What an invalid score gets."""


VESPA = Language("exp", "log", "fabs", "min", "max", "if ({}, {}, {})")
PAINLESS = Language(
    "Math.exp", "Math.log", "Math.abs", "Math.min", "Math.max", "(({}) ? ({}) : ({}))"
)
# In float32 the fast exponential of the hardware is used.
_CUDA = Language("exp", "log", "fabs", "fmin", "fmax", "(({}) ? T({}) : T({}))", "T({})", "NAN")
_FAST_CUDA = replace(_CUDA, exp="__expf")


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


def _expression(fitted: CalibrationMap, score: str, language: Language) -> str:
    require_map(fitted)
    if fitted.terms:
        raise refusal("terms", "a search engine")
    given = Script(label("score", score, "It is an expression of the engine."), language)
    return str(fitted.where_valid(ScriptTarget(language), given))


def kernel_source(fitted: CalibrationMap, *, single: bool) -> str:
    """A C++ function template from a score to its probability, NaN where the score is invalid.

    With `single`, T is float. One kernel reads the scores once and writes the probabilities.
    """
    language = _FAST_CUDA if single else _CUDA
    probability = fitted.where_valid(CudaTarget(language), Code("score", language))
    return f"template <typename T> T probability(T score) {{ return {probability}; }}"


@dataclass(frozen=True, slots=True)
class Script(Expression):
    """A piece of an expression; arithmetic is written with all parentheses."""

    text: str
    language: Language

    def __str__(self) -> str:
        return self.text

    def binary(self, left: Any, operator: str, right: Any) -> Self:
        texts = [
            part.text if isinstance(part, Script) else self.number(part) for part in (left, right)
        ]
        return replace(self, text=f"({texts[0]} {operator} {texts[1]})")

    def call(self, function: str, *bounds: float) -> Self:
        """A function of this expression, and of numbers."""
        arguments = [self.text, *[self.number(bound) for bound in bounds]]
        return replace(self, text=f"{function}({', '.join(arguments)})")

    def number(self, value: float) -> str:
        """A number; a minus after an operator would be read as another operator."""
        text = self.language.number.format(repr(float(value)))
        return f"({text})" if text.startswith("-") else text


class ScriptTarget(Target):
    """Expressions of one language. Exponentials may be infinite."""

    def __init__(self, language: Language) -> None:
        self.language = language

    def log(self, x: Script) -> Script:
        return x.call(self.language.log)

    def softplus(self, x: Script) -> Script:
        rest = (x.call(self.language.absolute) * -1.0).call(self.language.exp)
        return self.maximum(x, 0.0) + (1.0 + rest).call(self.language.log)

    def sigmoid(self, x: Script) -> Script:
        return 1.0 / (1.0 + (x * -1.0).call(self.language.exp))

    def minimum(self, x: Script, bound: float) -> Script:
        return x.call(self.language.minimum, bound)

    def maximum(self, x: Script, bound: float) -> Script:
        return x.call(self.language.maximum, bound)

    def where_valid(self, score: Script, formula: Unary, conditions: Sequence[Any] = ()) -> Script:
        largest = score.number(LARGEST_SCORE)
        is_valid = f"{score} >= -{largest} && {score} <= {largest}"
        text = self.language.choice.format(is_valid, formula(score), self.language.invalid)
        return replace(score, text=text)

    def steps(self, score: Script, edges: Sequence[float], values: Sequence[float]) -> Script:
        return self._tree(score, edges, [score.number(value) for value in values])

    def lines(self, score: Script, edges: Sequence[float], lines: Lines) -> Script:
        """One tree whose leaves are straight lines, instead of one tree per number."""
        leaves = []
        for origin, value, slope in zip(*lines, strict=True):
            leaves.append(str((score - origin) * slope + value))
        return self._tree(score, edges, leaves)

    def _tree(self, score: Script, edges: Sequence[float], leaves: Sequence[str]) -> Script:
        def choice(edge: float, below: str, above: str) -> str:
            return self.language.choice.format(f"{score} < {score.number(edge)}", below, above)

        return replace(score, text=nested_choices(edges, leaves, choice))


class Code(Script):
    """A C++ expression of type T, the type of the scores."""

    __slots__ = ()

    def __truediv__(self, other: float) -> Code:
        # On a GPU a division costs as much as all the rest of the formula.
        return self.binary(self, "*", 1 / other)


class CudaTarget(ScriptTarget):
    """CUDA source."""

    normalizes: ClassVar[bool] = True

    def place(self, score: Script, low: float, width: float) -> Script:
        # The difference is taken in double: float32 would lose it where scores are many times
        # larger than their range.
        return replace(score, text=f"T((double({score}) - {low!r}) * {1 / width!r})")

    def softplus(self, x: Script) -> Script:
        return replace(x, text=f"(fmax({x}, T(0)) + log1p(exp(-fabs({x}))))")

    def steps(self, score: Script, edges: Sequence[float], values: Sequence[float]) -> Script:
        raise UnsupportedOperationError("a kernel has no table to search for steps")

    def lines(self, score: Script, edges: Sequence[float], lines: Lines) -> Script:
        raise UnsupportedOperationError("a kernel has no table to search for lines")
