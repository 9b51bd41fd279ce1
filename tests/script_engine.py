"""An evaluator of Vespa ranking expressions and Painless expressions, written from their grammars.

It knows only what maps use: numbers, names, functions, arithmetic, comparisons, `&&`, Vespa's
`if (condition, yes, no)` and Painless's `condition ? yes : no`. Arithmetic is that of C++ and Java:
an exponential overflows to infinity.
"""

import math
import re
from collections.abc import Callable
from typing import Any

_TOKEN = re.compile(r"\s*(\d+\.?\d*(?:[eE][+-]?\d+)?|[A-Za-z_][\w.]*|&&|[<>=]=|[-+*/<>(),?:])")


def _exp(x: float) -> float:
    return math.inf if x > 709.7 else math.exp(x)


FUNCTIONS: dict[str, dict[str, Callable[..., float]]] = {
    "vespa": {"exp": _exp, "log": math.log, "fabs": abs, "min": min, "max": max},
    "painless": {
        "Math.exp": _exp,
        "Math.log": math.log,
        "Math.abs": abs,
        "Math.min": min,
        "Math.max": max,
    },
}


class Expression:
    """A parsed expression; call it with the value of the score."""

    def __init__(self, language: str, text: str, score: str) -> None:
        self.language = language
        self.functions = FUNCTIONS[language]
        self.score = score
        self.tokens = _TOKEN.findall(text)
        assert "".join(self.tokens) == re.sub(r"\s", "", text), "an unknown character"
        self.place = 0
        self.run = self._choice()
        assert self.place == len(self.tokens), f"text after the end: {self.tokens[self.place :]}"

    def __call__(self, score: float) -> float:
        return self.run({self.score: score})

    def _next(self, *wanted: str) -> str | None:
        if self.place < len(self.tokens) and self.tokens[self.place] in wanted:
            self.place += 1
            return self.tokens[self.place - 1]
        return None

    def _expect(self, wanted: str) -> None:
        assert self._next(wanted), f"{wanted} expected at {self.tokens[self.place :][:8]}"

    def _choice(self) -> Any:
        condition = self._binary(("&&",), ("<", ">", "<=", ">=", "=="), ("+", "-"), ("*", "/"))
        if self.language != "painless" or not self._next("?"):
            return condition
        yes = self._choice()
        self._expect(":")
        no = self._choice()
        return lambda names: yes(names) if condition(names) else no(names)

    def _binary(self, *levels: tuple[str, ...]) -> Any:
        if not levels:
            return self._unary()
        left = self._binary(*levels[1:])
        while (sign := self._next(*levels[0])) is not None:
            left = _combined(sign, left, self._binary(*levels[1:]))
        return left

    def _unary(self) -> Any:
        if self._next("-"):
            inner = self._unary()
            return lambda names: -inner(names)
        if self._next("("):
            inner = self._choice()
            self._expect(")")
            return inner
        token = self.tokens[self.place]
        self.place += 1
        if token[0].isdigit():
            return lambda _: float(token)
        if self._next("("):
            return self._call(token)
        assert token == self.score, f"an unknown name: {token}"
        return lambda names: names[token]

    def _call(self, name: str) -> Any:
        arguments = [self._choice()]
        while self._next(","):
            arguments.append(self._choice())
        self._expect(")")
        if name == "if" and self.language == "vespa":
            condition, yes, no = arguments
            return lambda names: yes(names) if condition(names) else no(names)
        function = self.functions[name]
        return lambda names: function(*[argument(names) for argument in arguments])


def _combined(sign: str, left: Any, right: Any) -> Any:
    operations: dict[str, Callable[[float, float], float]] = {
        "&&": lambda a, b: bool(a and b),
        "<": lambda a, b: a < b,
        ">": lambda a, b: a > b,
        "<=": lambda a, b: a <= b,
        ">=": lambda a, b: a >= b,
        "==": lambda a, b: a == b,
        "+": lambda a, b: a + b,
        "-": lambda a, b: a - b,
        "*": lambda a, b: a * b,
        "/": lambda a, b: a / b,
    }
    operation = operations[sign]
    return lambda names: operation(left(names), right(names))
