"""Step curves: Histogram, Isotonic and BBQ once fitted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np

from calibrank._internal.logit import expit, logit
from calibrank._internal.validation import Floats
from calibrank.errors import DataError
from calibrank.maps._blocks import Ends
from calibrank.maps._program import pack_steps
from calibrank.maps.curve import Curve
from calibrank.maps.targets.target import Target

# A step at 0 or 1 has infinite log odds, which no segment could change.
_SMALLEST_PROBABILITY = 1e-12


@dataclass(frozen=True, slots=True, repr=False)
class StepCurve(Curve):
    """Probability `values[k]` from `edges[k - 1]` up to `edges[k]`.

    `effective_rows[k]` is the effective sample size of step k.

    Intervals are Jeffreys intervals for that many rows. Steps chosen by the data (Isotonic, BBQ)
    are more uncertain than that: their intervals are lower bounds of the true width.
    """

    kind: ClassVar[str] = "step"

    edges: tuple[float, ...]
    values: tuple[float, ...]
    effective_rows: tuple[float, ...]

    def __post_init__(self) -> None:
        steps = len(self.edges) + 1
        if len(self.values) != steps or len(self.effective_rows) != steps:
            raise DataError(
                "values and effective_rows",
                f"be one more than edges ({steps})",
                f"{len(self.values)} and {len(self.effective_rows)}",
            )
        if not all(low < high for low, high in pairwise(self.edges)):
            raise DataError("edges", "be strictly increasing")
        if not all(0 <= value <= 1 for value in self.values):
            raise DataError("values", "lie in [0, 1]", f"{min(self.values)} to {max(self.values)}")
        if min(self.effective_rows) < 0:
            raise DataError("effective_rows", "not be negative", min(self.effective_rows))

    @property
    def description(self) -> str:
        return f"{len(self.values):,} steps, from {min(self.values):.4f} to {max(self.values):.4f}."

    @property
    def breakpoints(self) -> tuple[float, ...]:
        return self.edges

    @property
    def span(self) -> tuple[float, float]:
        # The first and the last step are beyond the outer edges: a tenth more shows them too.
        edges = self.edges or (0.0, 1.0)
        margin = (edges[-1] - edges[0]) / 10 or 1.0
        return edges[0] - margin, edges[-1] + margin

    def on(self, target: Target, score: Any) -> Any:
        return target.steps(score, self.edges, self.values)

    def _compile(self) -> bytes:
        return pack_steps(self.edges, self.values)

    def log_odds_on(self, target: Target, score: Any) -> Any:
        """The log odds as an expression of the target; they stay finite for steps at 0 and 1."""
        return target.steps(score, self.edges, self._finite_log_odds.tolist())

    @property
    def _finite_log_odds(self) -> Floats:
        values = np.clip(self.values, _SMALLEST_PROBABILITY, 1 - _SMALLEST_PROBABILITY)
        log_odds: Floats = logit(values)
        return log_odds

    def moved(self, shift: float, slope: float = 1.0) -> Self:
        """The curve with its steps changed; those at 0 and 1 are so within 1e-12."""
        return replace(self, values=tuple(expit(slope * self._finite_log_odds + shift).tolist()))

    def interval_ends(self, scores: Floats, level: float) -> Ends:
        """Jeffreys intervals: quantiles of the posterior under a Beta(1/2, 1/2) prior."""
        # Slow to load, and only intervals need it.
        from scipy.special import betaincinv  # noqa: PLC0415  (slow to load)

        edges, all_values, all_rows = self._arrays
        # Of these steps alone: a block of scores meets few of many.
        used, step = np.unique(np.searchsorted(edges, scores, side="right"), return_inverse=True)
        values, effective_rows = all_values[used], all_rows[used]
        positives = values * effective_rows + 0.5
        negatives = (1 - values) * effective_rows + 0.5
        # The posterior quantiles can leave out a value of 0 or 1: the interval contains the value.
        low = np.minimum(betaincinv(positives, negatives, (1 - level) / 2), values)
        high = np.maximum(betaincinv(positives, negatives, (1 + level) / 2), values)
        return low[step], high[step]

    @cached_property
    def _arrays(self) -> tuple[Floats, Floats, Floats]:
        return np.array(self.edges), np.array(self.values), np.array(self.effective_rows)
