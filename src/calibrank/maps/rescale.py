"""The map that only rescales: MinMax."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from calibrank._json import Fields
from calibrank._logit import logit
from calibrank._validation import Floats
from calibrank.errors import DataError
from calibrank.maps.calibration_map import CalibrationMap, Interval
from calibrank.maps.record import FitRecord

if TYPE_CHECKING:
    import narwhals as nw


@dataclass(frozen=True, slots=True)
class RescaleMap(CalibrationMap):
    """0 at low, 1 at high, a straight line between. Not an estimate, so its interval is a point."""

    kind: ClassVar[str] = "rescale"

    method: str
    low: float
    high: float
    record: FitRecord

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise DataError(f"low must be below high, got {self.low} and {self.high}.")

    @property
    def span(self) -> tuple[float, float]:
        return self.low, self.high

    @property
    def description(self) -> str:
        return f"A straight line from 0 at {self.low:.4g} to 1 at {self.high:.4g}: no calibration."

    def expression(self, score: "nw.Expr") -> "nw.Expr":
        return ((score - self.low) / (self.high - self.low)).clip(lower_bound=0.0, upper_bound=1.0)

    def _probabilities(self, scores: Floats) -> Floats:
        return np.clip((scores - self.low) / (self.high - self.low), 0, 1)

    def _log_odds(self, scores: Floats) -> Floats:
        return logit(self._probabilities(scores))

    def _ends(self, scores: Floats, level: float) -> Interval:
        probabilities = self._probabilities(scores)
        return Interval(probabilities, probabilities)

    def _content(self) -> dict[str, Any]:
        return {"low": self.low, "high": self.high}

    @classmethod
    def read(cls, method: str, fields: Fields, record: FitRecord) -> "RescaleMap":
        """Rebuild a saved map."""
        fields.only("low", "high")
        return cls(method, fields.number("low"), fields.number("high"), record)
