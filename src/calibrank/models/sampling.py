"""Training batches: each epoch visits every positive once, with a newly drawn negative."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrank._internal.validation import Floats
from calibrank.data.splits import Positives, draw_negatives
from calibrank.tables import Interactions


@dataclass(frozen=True, slots=True, eq=False)
class Epoch:
    """The batches of one epoch.

    `rows` holds row numbers of the parameter table, users before items, with shape [step, role,
    place]; the roles are user, positive and negative item. `importance` has shape [step, place].
    """

    rows: npt.NDArray[np.int64]
    importance: npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Sampler:
    """Draws the batches of every epoch."""

    log: Interactions
    importance: Floats
    seed: int
    batch: int
    positives: Positives

    @property
    def steps(self) -> int:
        """The number of batches per epoch."""
        return -(-len(self.log) // self.batch)

    def draw(self, number: int) -> Epoch:
        """Epoch `number`, which depends on nothing but the seed and the number.

        The last batch is padded with triples of importance 0.
        """
        # Stream 0 of the seed draws the initial parameters; epochs use streams from 1 on.
        rng = np.random.default_rng([self.seed, number + 1])
        order = rng.permutation(len(self.log))
        users = self.log.users[order]
        negatives = draw_negatives(self.positives, users, rng)
        rows = np.empty((self.steps, 3, self.batch), dtype=np.int64)
        rows[:, 0] = self._batches(users)
        rows[:, 1] = self._batches(self.log.n_users + self.log.items[order])
        rows[:, 2] = self._batches(self.log.n_users + negatives)
        return Epoch(rows, self._batches(self.importance[order]).astype(np.float32))

    def _batches(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        missing = self.steps * self.batch - len(values)
        return np.pad(values, (0, missing)).reshape(self.steps, self.batch)
