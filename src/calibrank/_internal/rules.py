"""Column rules: what a value in each kind of column must be.

This is the only place that states them; arrays, files and Spark frames all evaluate this table.
"""

import math
from dataclasses import dataclass
from typing import Any

LARGEST_SCORE = 1e30
"""A larger score is a padding value (float32's -3.4e38, float64's -1.8e308), not a prediction.

A larger weight is none either: sums of such weights and of their squares might not be finite.
"""

SMALLEST_MASS = 1e-30
"""Squares of smaller weights vanish, and inverses of smaller propensities overflow."""


@dataclass(frozen=True, slots=True)
class Range:
    """An interval of numbers as it is written, such as "(0, 1]"."""

    interval: str

    @property
    def low(self) -> float:
        return float(self.interval[1:-1].split(", ")[0])

    @property
    def high(self) -> float:
        return float(self.interval[1:-1].split(", ")[1])

    def holds(self, values: Any) -> Any:
        """Whether each value is valid; NaN never is.

        Only comparisons, `&` and `|` are used, so that NumPy arrays, torch tensors and Spark
        columns all work.
        """
        # A bound is converted to the type of the values. In float32 the smallest positive float64
        # would become 0 and the largest one infinity, so open ends are strict comparisons.
        above = values > self.low if self.interval[0] == "(" else values >= self.low
        below = values < self.high if self.interval[-1] == ")" else values <= self.high
        return above & below

    def as_rule(self) -> str:
        """Completes the sentence "<name> must ..."."""
        if self.high < math.inf:
            return f"lie in {self.interval}"
        if self.low == -math.inf:
            return "be a finite number"
        bound = f"above {self.low:g}" if self.interval[0] == "(" else f"{self.low:g} or more"
        return f"be a finite number, {bound}"


@dataclass(frozen=True, slots=True)
class ColumnRule(Range):
    """A range of numbers, with words of its own; with `only_ends`, just its two ends.

    Above 0, values are at least `smallest`.
    """

    statement: str
    remedy: str
    only_ends: bool = False
    smallest: float = 0.0

    def holds(self, values: Any) -> Any:
        if self.only_ends:
            return (values == self.low) | (values == self.high)
        inside = super(ColumnRule, self).holds(values)
        return inside & ((values >= self.smallest) | (values == 0)) if self.smallest else inside

    def statement_for(self, value: float) -> str:
        """What a value must be that is not valid."""
        if not 0 < value < self.smallest:
            return self.statement
        zero = "" if self.interval[0] == "(" else "0 or "
        return f"be {zero}at least {self.smallest:g}"


_SCORES = f"[-{LARGEST_SCORE}, {LARGEST_SCORE}]"
_MASSES = f"[0, {LARGEST_SCORE}]"

COLUMN_RULES = {
    "score": ColumnRule(
        _SCORES,
        "be finite and within +-1e30",
        "Drop padded, masked or missing rows before calibrating: they are not scores.",
    ),
    "label": ColumnRule(
        "[0, 1]",
        "be 0 or 1",
        "Turn ratings into likes first, e.g. labels = ratings > 3 (or counts > 0, seconds > 30; "
        "of -1 and 1: > 0).",
        only_ends=True,
    ),
    "propensity": ColumnRule(
        "(0, 1]",
        "lie in (0, 1]",
        "Clip in the estimator that made it, e.g. Popularity(clip=0.1).",
        smallest=SMALLEST_MASS,
    ),
    "probability": ColumnRule("[0, 1]", "lie in [0, 1]", "Calibrate scores first."),
    "weight": ColumnRule(
        _MASSES,
        "be finite and not negative",
        "Drop the row to ignore it; a weight above 1e30 counts as infinite.",
        smallest=SMALLEST_MASS,
    ),
    "grade": ColumnRule("(-inf, inf)", "be a finite number", "Drop rows without a rating."),
    "clicks": ColumnRule(
        _MASSES, "be a finite number of clicks, not negative", "Drop the row to ignore it."
    ),
    "impressions": ColumnRule(
        _MASSES, "be a finite number of impressions, not negative", "Drop the row to ignore it."
    ),
    "rank": ColumnRule(
        "[1, 1e9]",
        "be a rank, counted from 1, of at most 1e9",
        "Add 1 to ranks that are counted from 0, and drop rows without a rank.",
    ),
    "feature": ColumnRule(_SCORES, "be finite and within +-1e30", "Fill missing values first."),
    "soft label": ColumnRule(
        "[0, 1]", "be a probability in [0, 1], as it was declared", "Divide percentages by 100."
    ),
}
"""Rules by the role that a column plays."""

_MISSING_LABEL = "Drop rows whose label is missing, or use 0 if no label means no preference."


def remedy_for(role: str, value: float) -> str:
    """What to do about an invalid value of a column."""
    is_missing_label = role == "label" and math.isnan(value)
    return _MISSING_LABEL if is_missing_label else COLUMN_RULES[role].remedy
