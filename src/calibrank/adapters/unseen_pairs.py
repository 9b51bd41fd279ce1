"""Validation positives with sampled negatives, representing the pairs outside the training log.

A recommender shows pairs that are not in its training log, so these are the pairs to calibrate
for; each has weight 1. Let a log observe a positive with probability p, and let a fraction h of
the log be held out for validation. A positive outside training is then in validation with
probability p h / (1 - p (1 - h)), which is its propensity here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calibrank._internal.validation import Floats
from calibrank.data.negatives import Positives, draw_negatives
from calibrank.errors import DataError
from calibrank.tables import Index, Interactions

# Negatives per positive: the sampling noise of the negatives is then small beside that of the
# positives.
_NEGATIVES_PER_POSITIVE = 20
_FEWEST_NEGATIVES = 10_000

Rows = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class UnseenPairs:
    """Pairs outside the training log: the validation positives, and weighted other pairs."""

    pairs: Interactions
    weights: Floats
    held_out: float
    """The fraction of all positives that is held out for validation."""

    @classmethod
    def of(
        cls, validation: Interactions, train: Interactions, seed: int | np.random.Generator = 0
    ) -> UnseenPairs:
        """Sample pairs of the users and items that occur in either log."""
        rng = np.random.default_rng(seed)
        users = Index.of(train.users, validation.users)
        items = Index.of(train.items, validation.items)
        kept = _with_row_numbers(train, users, items).positives()
        held = _with_row_numbers(validation, users, items).positives()
        positives = Positives.of(kept, held)
        n_others = len(users) * len(items) - len(positives.cells)
        if not len(held) or not n_others:
            raise DataError(
                "validation",
                "hold positives and leave other pairs to sample",
                got=f"{len(held)} positives and {n_others} other pairs",
            )
        n_negatives = max(_NEGATIVES_PER_POSITIVE * len(held), _FEWEST_NEGATIVES)
        n_negatives = min(n_negatives, n_others)
        negative_users, negative_items = _draw(positives, n_negatives, rng)
        counts = [len(held), len(negative_users)]
        pairs = Interactions(
            users.names[np.concatenate([held.users, negative_users])],
            items.names[np.concatenate([held.items, negative_items])],
            np.repeat([1.0, 0.0], counts),
        )
        # The negatives together weigh as much as all pairs that they were drawn from.
        weights = np.repeat([1.0, n_others / len(negative_users)], counts)
        return cls(pairs, weights, len(held) / (len(held) + len(kept)))

    def propensity(self, logged: Floats) -> Floats:
        """P(in validation) of positives outside training, from P(in either log).

        >>> unseen = UnseenPairs(Interactions([1], [1]), np.ones(1), held_out=0.1)
        >>> unseen.propensity(np.array([0.01, 0.5, 1.0])).round(4)
        array([0.001 , 0.0909, 1.    ])
        """
        # p h / (1 - p + p h), see the module's docstring.
        in_validation = logged * self.held_out
        return in_validation / (1 - logged + in_validation)


def _with_row_numbers(log: Interactions, users: Index, items: Index) -> Interactions:
    user_rows = users.rows("users", log.users)
    item_rows = items.rows("items", log.items)
    return Interactions(user_rows, item_rows, log.labels, len(users), len(items))


def _draw(positives: Positives, count: int, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Pairs drawn uniformly, with replacement, from those that are not positive."""
    n_positives = np.bincount(positives.cells // positives.n_items, minlength=positives.n_users)
    n_others = positives.n_items - n_positives
    # A user is drawn in proportion to its other items, then one of these uniformly.
    users = rng.choice(positives.n_users, count, p=n_others / n_others.sum())
    return users, draw_negatives(positives, users, rng)
