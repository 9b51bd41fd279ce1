"""What a value in each kind of column must be: one table that arrays, files and Spark all evaluate."""

from dataclasses import dataclass
from typing import Any

LARGEST_SCORE = 1e30
"""Beyond this a score is padding (float32's -3.4e38, float64's -1.8e308), not an opinion."""


@dataclass(frozen=True, slots=True)
class ColumnRule:
    """A range of numbers; with `only_ends`, just its two ends."""

    low: float
    high: float
    statement: str
    """Completes the sentence "<column> must ..."."""
    remedy: str
    only_ends: bool = False
    excludes_low: bool = False
    excludes_high: bool = False

    def holds(self, values: Any) -> Any:
        """Whether each value obeys; NaN never does.

        Only comparisons, `&` and `|` are used, so numpy arrays, torch tensors and Spark columns all work.
        """
        if self.only_ends:
            return (values == self.low) | (values == self.high)
        # A bound is converted to the type of the values. In float32 the smallest positive float64
        # would become 0 and the largest one infinity, so open ends are strict comparisons.
        above = values > self.low if self.excludes_low else values >= self.low
        below = values < self.high if self.excludes_high else values <= self.high
        return above & below


COLUMN_RULES = {
    "score": ColumnRule(
        -LARGEST_SCORE,
        LARGEST_SCORE,
        "be finite and within +-1e30",
        "Drop padded, masked or missing rows before calibrating: they are not scores.",
    ),
    "label": ColumnRule(
        0,
        1,
        "be 0 or 1",
        "Turn ratings into likes first, e.g. labels = ratings > 3.",
        only_ends=True,
    ),
    "propensity": ColumnRule(
        0,
        1,
        "lie in (0, 1]",
        "Clip in the estimator that made it, e.g. Popularity(clip=0.1).",
        excludes_low=True,
    ),
    "probability": ColumnRule(0, 1, "lie in [0, 1]", "Calibrate scores first."),
    "weight": ColumnRule(
        0,
        float("inf"),
        "be finite and not negative",
        "Drop the row to ignore it.",
        excludes_high=True,
    ),
}
"""By the role a column plays."""
