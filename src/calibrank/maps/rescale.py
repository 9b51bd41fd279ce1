"""The curve that only rescales scores: MinMax once fitted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from calibrank._internal.validation import Floats
from calibrank.errors import DataError
from calibrank.maps._blocks import Ends
from calibrank.maps._program import Kind, pack
from calibrank.maps.curve import Curve
from calibrank.maps.targets.target import Target, narrow_range_problem


@dataclass(frozen=True, slots=True, repr=False)
class RescaleCurve(Curve):
    """0 at low, 1 at high, a straight line between.

    It estimates nothing, so its intervals have no width.
    """

    kind: ClassVar[str] = "rescale"

    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise DataError("low", "be below high", f"{self.low} and {self.high}")

    @property
    def description(self) -> str:
        return f"A straight line from 0 at {self.low:.4g} to 1 at {self.high:.4g}: no calibration."

    @property
    def breakpoints(self) -> tuple[float, ...]:
        return self.low, self.high

    def float32_problem(self) -> str | None:
        return narrow_range_problem(self.low, self.high)

    def on(self, target: Target, score: Any) -> Any:
        position = target.place(score, self.low, self.high - self.low)
        return target.maximum(target.minimum(position, 1.0), 0.0)

    def _compile(self) -> bytes:
        return pack(Kind.RESCALE, self.low, self.high - self.low)

    def interval_ends(self, scores: Floats, level: float) -> Ends:
        probabilities = self.probabilities(scores)
        return probabilities, probabilities
