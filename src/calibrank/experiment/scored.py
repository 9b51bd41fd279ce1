"""The scores of one trained model, saved so that figures can be drawn later."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from calibrank._atomic import atomic_path
from calibrank._validation import Floats
from calibrank.tables import Interactions

_COLUMNS = ("users", "items", "labels")
_SCORES = ("test_scores", "pair_scores", "propensity", "weights")


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """Scores of the test set and of the calibration pairs, with the evidence of the latter."""

    test: Interactions
    test_scores: Floats
    pairs: Interactions
    pair_scores: Floats
    propensity: Floats
    weights: Floats

    def save(self, path: Path) -> None:
        """Write an .npz file, atomically."""
        arrays: dict[str, Any] = {name: getattr(self, name) for name in _SCORES}
        for column in _COLUMNS:
            arrays[f"test_{column}"] = getattr(self.test, column)
            arrays[f"pair_{column}"] = getattr(self.pairs, column)
        # Not every user and item occurs in the pairs, so the sizes are saved too.
        arrays["sizes"] = np.array([self.test.n_users, self.test.n_items])
        with atomic_path(path) as partial, partial.open("wb") as file:
            np.savez_compressed(file, **arrays)

    @classmethod
    def load(cls, path: Path) -> Scored:
        """Read a file that `save` wrote."""
        with np.load(path) as arrays:
            return cls(
                test=_interactions(arrays, "test"),
                pairs=_interactions(arrays, "pair"),
                **{name: arrays[name] for name in _SCORES},
            )


def _interactions(arrays: Any, prefix: str) -> Interactions:
    users, items, labels = [arrays[f"{prefix}_{column}"] for column in _COLUMNS]
    n_users, n_items = arrays["sizes"].tolist()
    return Interactions(users, items, labels, n_users, n_items)
