"""LightGCN (He et al. 2020): BPR on vectors that are averaged over the graph of positives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from calibrank.errors import DataError
from calibrank.models.bpr import BPR


@dataclass(frozen=True, slots=True)
class LightGCN(BPR):
    """BPR with `layers` graph convolutions, whose edges have weight 1 / sqrt(d_u d_i)."""

    layers: int = 2

    name: ClassVar[str] = "LightGCN"

    def __post_init__(self) -> None:
        BPR.__post_init__(self)
        if self.layers < 1:
            raise DataError("layers", "be 1 or more", self.layers, "Without layers, use BPR.")

    @property
    def graph_layers(self) -> int:
        return self.layers
