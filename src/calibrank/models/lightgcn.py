"""LightGCN (He et al. 2020): matrix factorisation whose vectors are spread over the graph of positives."""

from dataclasses import dataclass
from typing import ClassVar

from calibrank.errors import DataError
from calibrank.models.bpr import BPR


@dataclass(frozen=True, slots=True)
class LightGCN(BPR):
    """BPR on the mean of a row and its `layers` neighbourhoods, each edge weighing 1 / sqrt(d_u d_i)."""

    layers: int = 2

    name: ClassVar[str] = "LightGCN"

    def __post_init__(self) -> None:
        BPR.__post_init__(self)
        if self.layers < 1:
            raise DataError(
                f"layers must be 1 or more, got {self.layers}. Without layers it is BPR."
            )

    @property
    def hops(self) -> int:
        return self.layers
