"""Maps as one expression of a language like C: scripts of search engines, and CUDA."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from calibrank._internal.validation import LARGEST_SCORE
from calibrank.maps.targets.target import Expression, Lines, Target, Unary, nested_choices


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
        probability: Script = 1.0 / (1.0 + (x * -1.0).call(self.language.exp))
        return probability

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
