"""Training batches: each epoch visits every positive once, with a newly drawn negative."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrank._internal.validation import Floats
from calibrank.data.negatives import Positives, draw_negatives
from calibrank.tables import Interactions


@dataclass(frozen=True, slots=True, eq=False)
class Epoch:
    """The batches of one epoch.

    `rows` holds row numbers of the parameter table, with shape [step, role, seed, place], where the
    roles are user, positive item and negative item. `importance` has shape [step, seed, place].
    """

    rows: npt.NDArray[np.int64]
    importance: npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Sampler:
    """Draws the batches of every epoch, for all seeds.

    Nodes are users followed by items. Row `node * n_seeds + seed_index` of the parameter table
    belongs to one node of one seed.
    """

    log: Interactions
    importance: Floats
    seeds: tuple[int, ...]
    batch: int
    positives: Positives

    @classmethod
    def of(
        cls, log: Interactions, importance: Floats, seeds: tuple[int, ...], batch: int
    ) -> Sampler:
        return cls(log, importance, seeds, batch, Positives.of(log))

    @property
    def steps(self) -> int:
        """The number of batches per epoch."""
        return -(-len(self.log) // self.batch)

    def draw(self, number: int) -> Epoch:
        """Epoch `number`, which depends on nothing but the seeds and the number.

        The last batch is padded with triples of importance 0.
        """
        n_seeds = len(self.seeds)
        rows = np.empty((self.steps, 3, n_seeds, self.batch), dtype=np.int64)
        importance = np.empty((self.steps, n_seeds, self.batch), dtype=np.float32)
        for index, seed in enumerate(self.seeds):
            # Stream 0 of each seed draws the initial parameters; epochs use streams from 1 on.
            rng = np.random.default_rng([seed, number + 1])
            order = rng.permutation(len(self.log))
            importance[:, index] = self._batches(self.importance[order])
            users = self.log.users[order]
            negatives = draw_negatives(self.positives, users, rng)
            item_nodes = self.log.n_users + np.stack([self.log.items[order], negatives])
            for role, nodes in enumerate((users, *item_nodes)):
                rows[:, role, index] = self._batches(nodes) * n_seeds + index
        return Epoch(rows, importance)

    def _batches(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        missing = self.steps * self.batch - len(values)
        return np.pad(values, (0, missing)).reshape(self.steps, self.batch)
