"""What an epoch trains on: every positive once, each with a fresh negative, drawn anew from the seed and its number."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrank._validation import Floats
from calibrank.data.negatives import Positives, draw_negatives
from calibrank.tables import Interactions


@dataclass(frozen=True, slots=True, eq=False)
class Epoch:
    """Batches of triples: rows of the table as [step, user or liked or other, seed, place] and their importance."""

    rows: npt.NDArray[np.int64]
    importance: npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Sampler:
    """Draws epochs. Row `node * seeds + seed` of the table belongs to a node of a seed; items come after users."""

    positives: Interactions
    importance: Floats
    seeds: tuple[int, ...]
    batch: int
    liked: Positives

    @classmethod
    def of(
        cls, positives: Interactions, importance: Floats, seeds: tuple[int, ...], batch: int
    ) -> "Sampler":
        return cls(positives, importance, seeds, batch, Positives.of(positives))

    @property
    def steps(self) -> int:
        """Batches an epoch."""
        return -(-len(self.positives) // self.batch)

    def draw(self, number: int) -> Epoch:
        """Epoch `number`, the same whenever it is drawn. The last batch is filled up with triples of no importance."""
        steps, seeds = self.steps, len(self.seeds)
        rows = np.empty((steps, 3, seeds, self.batch), dtype=np.int64)
        importance = np.empty((steps, seeds, self.batch), dtype=np.float32)
        for place, seed in enumerate(self.seeds):
            rng = np.random.default_rng([seed, number + 1])
            order = rng.permutation(len(self.positives))
            importance[:, place] = self._batches(self.importance[order])
            users = self.positives.users[order]
            others = draw_negatives(self.liked, users, rng)
            items = self.positives.n_users + np.stack([self.positives.items[order], others])
            for kind, nodes in enumerate((users, *items)):
                rows[:, kind, place] = self._batches(nodes) * seeds + place
        return Epoch(rows, importance)

    def _batches(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        missing = self.steps * self.batch - len(values)
        return np.pad(values, (0, missing)).reshape(self.steps, self.batch)
