"""Declared labels: the one place that turns graded labels, counts and probabilities into labels.

What a column means is declared, never inferred: `declare` reads `rating >= 4`, `answer == "yes"`,
`clicks / impressions` and `probability(judge)`. Each gives a label in [0, 1] and, for counts, the
number of rows that a row stands for.
"""

from __future__ import annotations

import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from calibrank._internal.arguments import instance, shown
from calibrank._internal.validation import Floats
from calibrank.errors import DataError, Remedy, Setting

Values = npt.NDArray[Any]

_OPERATORS: dict[str, Callable[[Values, float | str], Any]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}
_RULE = re.compile(
    r"""^\s*(?P<column>.+?)\s*(?P<sign>>=|<=|==|!=|>|<)\s*"""
    r"""(?:(?P<quote>["'])(?P<text>.*)(?P=quote)|(?P<value>\S+))\s*$"""
)
_COUNTS = re.compile(r"^\s*(?P<clicks>.+?)\s*/\s*(?P<impressions>.+?)\s*$")
_SOFT = re.compile(r"^\s*probability\(\s*(?P<column>.+?)\s*\)\s*$")


class LabelRule(ABC):
    """How labels are made from declared columns."""

    is_binary: ClassVar[bool] = False
    """Whether every label is 0 or 1, and stands for one row."""

    @property
    def columns(self) -> Mapping[str, str]:
        """The columns of numbers to read, by the role whose rule they must obey."""
        return {}

    @property
    def texts(self) -> tuple[str, ...]:
        """The columns of text to read."""
        return ()

    @abstractmethod
    def labels(self, values: Mapping[str, Values]) -> tuple[Values, Floats | None]:
        """Labels in [0, 1], and the number of rows each stands for (None: one)."""


@dataclass(frozen=True, slots=True)
class Threshold(LabelRule):
    """A positive is a row whose graded label (stars, seconds) or text passes a comparison.

    >>> rule = parse_rule("rating >= 4")
    >>> rule.labels({"rating": np.array([3, 4, 5])})[0]
    array([0, 1, 1], dtype=int8)
    >>> declare('answer == "yes"').labels({"answer": np.array(["yes", "no"])})[0]
    array([1, 0], dtype=int8)
    """

    is_binary: ClassVar[bool] = True

    column: str
    sign: str
    value: float | str

    def __str__(self) -> str:
        value = f'"{self.value}"' if isinstance(self.value, str) else f"{self.value:g}"
        return f"{self.column} {self.sign} {value}"

    @property
    def columns(self) -> Mapping[str, str]:
        return {} if self.texts else {"grade": self.column}

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.column,) if isinstance(self.value, str) else ()

    def labels(self, values: Mapping[str, Values]) -> tuple[Values, Floats | None]:
        return self.is_liked(values[self.column]), None

    def is_liked(self, grades: Values) -> Values:
        """1 for each grade that passes the comparison, otherwise 0."""
        return np.asarray(_OPERATORS[self.sign](grades, self.value)).astype(np.int8)


@dataclass(frozen=True, slots=True)
class Counts(LabelRule):
    """A row stands for several impressions, of which some were clicked.

    >>> Counts("c", "n").labels({"c": np.array([1, 0]), "n": np.array([4, 2])})
    (array([0.25, 0.  ]), array([4., 2.]))
    """

    clicks: str
    impressions: str

    def __str__(self) -> str:
        return f"{self.clicks} / {self.impressions}"

    @property
    def columns(self) -> Mapping[str, str]:
        return {"clicks": self.clicks, "impressions": self.impressions}

    def labels(self, values: Mapping[str, Values]) -> tuple[Values, Floats | None]:
        clicks = values[self.clicks].astype(np.float64)
        shown = values[self.impressions].astype(np.float64)
        too_many = clicks > shown
        if too_many.any():
            row = int(np.argmax(too_many))
            raise DataError(
                self.clicks,
                f"be at most {self.impressions}",
                f"{clicks[row]:g} clicks of {shown[row]:g} impressions",
                "Exchange the two columns, or fix the row.",
            )
        # A row without impressions has no weight, so its label does not matter.
        return clicks / np.where(shown > 0, shown, 1), shown


@dataclass(frozen=True, slots=True)
class Soft(LabelRule):
    """A label is a probability that the pair is preferred, such as a judge's."""

    column: str

    def __str__(self) -> str:
        return f"probability({self.column})"

    @property
    def columns(self) -> Mapping[str, str]:
        return {"soft label": self.column}

    def labels(self, values: Mapping[str, Values]) -> tuple[Values, Floats | None]:
        return values[self.column], None


def declare(text: str) -> LabelRule:
    """Read any declaration of labels that is not the name of a column of 0 and 1.

    >>> print(declare("rating >= 4"), declare("probability(judge)"), sep=", ")
    rating >= 4, probability(judge)
    >>> declare("clicks / impressions")
    Counts(clicks='clicks', impressions='impressions')
    """
    instance("a label", text, str)
    soft = _SOFT.match(text)
    if soft:
        return Soft(soft["column"])
    found = _RULE.match(text)
    counts = _COUNTS.match(text)
    if counts and not found:
        return Counts(counts["clicks"], counts["impressions"])
    if found is None or found["sign"] not in ("==", "!="):
        return parse_rule(text)
    if found["text"] is not None:
        return Threshold(found["column"], found["sign"], found["text"])
    if _number(found["value"]) is None:
        remedy = f'Write {found["column"]} {found["sign"]} "{found["value"]}".'
        raise DataError("a text in a label rule", "stand in quotes", shown(text), remedy)
    return parse_rule(text)


def parse_rule(text: str) -> Threshold:
    """Read a declaration such as `rating >= 4` or `seconds > 30`.

    >>> parse_rule("dwell time > 30")
    Threshold(column='dwell time', sign='>', value=30.0)
    """
    instance("a rule for positives", text, str)
    found = _RULE.match(text)
    value = _number(found["value"] or "") if found else None
    if found is None or value is None:
        rule = f"be a column, a comparison ({', '.join(_OPERATORS)}) and a number"
        raise DataError("a rule for positives", rule, shown(text), 'Write it as "rating >= 4".')
    return Threshold(found["column"], found["sign"], value)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if np.isfinite(value) else None


def declaration_for(name: str, values: Values) -> list[Remedy]:
    """The declarations that would make a column valid whose values are not 0 and 1.

    Only the wording of an error depends on what the values look like, never a result.
    """
    largest = float(np.nanmax(values))
    if float(np.nanmin(values)) >= 0 and largest <= 1:
        probability = Setting("label", f"probability({name})")
        return [
            ("Or declare what is liked, for example ", Setting("label", f"{name} >= 0.5"), "."),
            ("Or declare a probability, such as a judge's: ", probability, "."),
        ]
    declare = "Declare what is liked, for example "
    if largest <= _LARGEST_RATING:
        middle = int(np.ceil(0.75 * largest))
        return [(declare, Setting("label", f"{name} >= {middle}"), ".")]
    if values.dtype.kind in "iu" or bool((values == np.floor(values)).all()):
        clicks = Setting("label", f"{name} / IMPRESSIONS")
        return [
            (declare, Setting("label", f"{name} > 0"), "."),
            ("Numbers of clicks are ", clicks, ", with the column of impressions."),
        ]
    return [(declare, Setting("label", f"{name} > 30"), ".")]


# The largest rating of common scales; larger labels are counts or durations.
_LARGEST_RATING = 10
