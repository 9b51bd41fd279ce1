"""Validation positives set against the pairs that neither they nor the training log hold.

What a recommender shows next is not in its training log, so those are the pairs to speak for: each counts once. Of a
log that saw a liked pair with probability p, a share h went to validation. A liked pair that is not in training is then
in validation with probability p h / (1 - p (1 - h)), and that is its propensity here.
"""

from dataclasses import dataclass

import numpy as np

from calibrank._validation import Floats
from calibrank.data.negatives import Positives, draw_negatives
from calibrank.errors import DataError
from calibrank.tables import Index, Interactions

_EACH = 20  # negatives a positive: enough for their noise to drown in that of the positives
_LEAST = 10_000


@dataclass(frozen=True, slots=True, eq=False)
class Unseen:
    """Pairs outside the training log: all liked ones of validation, and some others weighted to stand for the rest."""

    pairs: Interactions
    weights: Floats
    share: float
    """Of all positives, those held out for validation."""

    @classmethod
    def of(
        cls, validation: Interactions, train: Interactions, rng: np.random.Generator
    ) -> "Unseen":
        """The world is the users and items that either log names."""
        people, things = (
            Index.of(train.users, validation.users),
            Index.of(train.items, validation.items),
        )

        def recoded(log: Interactions) -> Interactions:
            rows = people.rows("users", log.users), things.rows("items", log.items)
            return Interactions(*rows, log.labels, len(people), len(things))

        kept, held = recoded(train).positives(), recoded(validation).positives()
        positives = Positives.of(kept, held)
        others = len(people) * len(things) - len(positives.cells)
        if not len(held) or not others:
            raise DataError(
                f"validation must hold positives and leave other pairs, got {len(held)} and {others}."
            )
        users, items = _draw(positives, min(max(_EACH * len(held), _LEAST), others), rng)
        rows = np.concatenate([held.users, users]), np.concatenate([held.items, items])
        labels = np.repeat([1.0, 0.0], [len(held), len(users)])
        weights = np.repeat([1.0, others / len(users)], [len(held), len(users)])
        named = Interactions(people.names[rows[0]], things.names[rows[1]], labels)
        return cls(named, weights, len(held) / (len(held) + len(kept)))

    def propensity(self, logged: Floats) -> Floats:
        """P(in validation) of liked pairs outside training, from P(in either log).

        >>> Unseen(Interactions([1], [1]), np.ones(1), share=0.1).propensity(np.array([0.01, 0.5, 1.0])).round(4)
        array([0.001 , 0.0909, 1.    ])
        """
        held = logged * self.share
        return held / (1 - logged + held)


def _draw(
    positives: Positives, count: int, rng: np.random.Generator
) -> tuple[np.ndarray[tuple[int], np.dtype[np.intp]], np.ndarray[tuple[int], np.dtype[np.intp]]]:
    """Pairs drawn evenly from those that are not positive."""
    owned = np.bincount(positives.cells // positives.n_items, minlength=positives.n_users)
    left = positives.n_items - owned
    users = rng.choice(positives.n_users, count, p=left / left.sum())
    return users, draw_negatives(positives, users, rng)
