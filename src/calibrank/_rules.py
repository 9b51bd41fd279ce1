"""Column rules: what a value in each kind of column must be.

This is the only place that states them; arrays, files and Spark frames all evaluate this table.
"""

from dataclasses import dataclass
from typing import Any

LARGEST_SCORE = 1e30
"""A larger score is a padding value (float32's -3.4e38, float64's -1.8e308), not a prediction."""

_SMALLEST_POSITIVE = 5e-324
_LARGEST_FLOAT = 1.7976931348623157e308


@dataclass(frozen=True, slots=True)
class ColumnRule:
    """An inclusive range of float64 values; with `only_ends`, just its two ends."""

    low: float
    high: float
    statement: str
    """Completes the sentence "<column> must ..."."""
    remedy: str
    only_ends: bool = False

    def holds(self, values: Any) -> Any:
        """Whether each value is valid; NaN never is.

        Only comparisons, `&` and `|` are used, so that NumPy arrays, torch tensors and Spark
        columns all work.
        """
        if self.only_ends:
            return (values == self.low) | (values == self.high)
        return self._above_low(values) & self._below_high(values)

    # A float32 array rounds a Python scalar to float32 before it compares: the smallest positive
    # float64 becomes 0, the largest becomes infinity, and the excluded value would be accepted.
    # Strict comparisons with 0 and infinity mean the same in every type.

    def _above_low(self, values: Any) -> Any:
        if self.low == _SMALLEST_POSITIVE:
            return values > 0
        return values >= self.low

    def _below_high(self, values: Any) -> Any:
        if self.high == _LARGEST_FLOAT:
            return values < float("inf")
        return values <= self.high


COLUMN_RULES = {
    "score": ColumnRule(
        low=-LARGEST_SCORE,
        high=LARGEST_SCORE,
        statement="be finite and within +-1e30",
        remedy="Drop padded, masked or missing rows before calibrating: they are not scores.",
    ),
    "label": ColumnRule(
        low=0,
        high=1,
        statement="be 0 or 1",
        remedy="Turn ratings into likes first, e.g. labels = ratings > 3.",
        only_ends=True,
    ),
    "propensity": ColumnRule(
        low=_SMALLEST_POSITIVE,
        high=1,
        statement="lie in (0, 1]",
        remedy="Clip in the estimator that made it, e.g. Popularity(clip=0.1).",
    ),
    "probability": ColumnRule(
        low=0,
        high=1,
        statement="lie in [0, 1]",
        remedy="Calibrate scores first.",
    ),
    "weight": ColumnRule(
        low=0,
        high=_LARGEST_FLOAT,
        statement="be finite and not negative",
        remedy="Drop the row to ignore it.",
    ),
}
"""Rules by the role that a column plays."""
