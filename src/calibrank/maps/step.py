"""Step maps: Histogram, Isotonic and BBQ once fitted."""

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from calibrank._json import Fields
from calibrank._logit import logit
from calibrank._validation import Floats
from calibrank.errors import DataError
from calibrank.maps.calibration_map import CalibrationMap, Interval
from calibrank.maps.record import FitRecord
from calibrank.maps.targets.narwhals import steps

if TYPE_CHECKING:
    import narwhals as nw


@dataclass(frozen=True, slots=True)
class StepMap(CalibrationMap):
    """`values[k]` from `edges[k - 1]` up to `edges[k]`; `effective[k]` is how many plain rows stand behind it.

    Intervals are Jeffreys' for that many rows. Steps chosen by the data (Isotonic, BBQ) are more uncertain
    than that: read their intervals as the least there is.
    """

    kind: ClassVar[str] = "step"

    method: str
    edges: tuple[float, ...]
    values: tuple[float, ...]
    effective: tuple[float, ...]
    record: FitRecord

    def __post_init__(self) -> None:
        steps = len(self.edges) + 1
        if len(self.values) != steps or len(self.effective) != steps:
            lengths = f"{len(self.values)} and {len(self.effective)}"
            raise DataError(
                f"values and effective must be one more than edges ({steps}), got {lengths}."
            )
        if not all(low < high for low, high in pairwise(self.edges)):
            raise DataError("edges must be strictly increasing.")
        if not all(0 <= value <= 1 for value in self.values):
            raise DataError(
                f"values must lie in [0, 1], got {min(self.values)} to {max(self.values)}."
            )
        if min(self.effective) < 0:
            raise DataError(f"effective must not be negative, got {min(self.effective)}.")

    @property
    def span(self) -> tuple[float, float]:
        edges = self.edges or (0.0, 1.0)
        margin = (edges[-1] - edges[0]) / 10 or 1.0
        return edges[0] - margin, edges[-1] + margin

    @property
    def description(self) -> str:
        return f"{len(self.values):,} steps, from {min(self.values):.4f} to {max(self.values):.4f}."

    def _steps(self, scores: Floats) -> np.ndarray[tuple[int, ...], np.dtype[np.intp]]:
        return np.searchsorted(np.array(self.edges), scores, side="right")

    def expression(self, score: "nw.Expr") -> "nw.Expr":
        return steps(score, self.edges, self.values)

    def _probabilities(self, scores: Floats) -> Floats:
        return np.array(self.values)[self._steps(scores)]

    def _log_odds(self, scores: Floats) -> Floats:
        return logit(self._probabilities(scores))

    def _ends(self, scores: Floats, level: float) -> Interval:
        from scipy.special import betaincinv  # noqa: PLC0415  (slow to load, and only intervals need it)

        values, effective = np.array(self.values), np.array(self.effective)
        liked, disliked = values * effective + 0.5, (1 - values) * effective + 0.5
        low = np.minimum(betaincinv(liked, disliked, (1 - level) / 2), values)
        high = np.maximum(betaincinv(liked, disliked, (1 + level) / 2), values)
        steps = self._steps(scores)
        return Interval(low[steps], high[steps])

    def _content(self) -> dict[str, Any]:
        return {
            "edges": list(self.edges),
            "values": list(self.values),
            "effective": list(self.effective),
        }

    @classmethod
    def read(cls, method: str, fields: Fields, record: FitRecord) -> "StepMap":
        """Rebuild a saved map."""
        fields.only("edges", "values", "effective")
        edges, values, effective = (
            tuple(fields.numbers(name)) for name in ("edges", "values", "effective")
        )
        return cls(method, edges, values, effective, record)
