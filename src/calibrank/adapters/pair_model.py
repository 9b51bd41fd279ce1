"""The base classes of adapters for models that score users and items."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibrank._internal.validation import Floats, Ids, IdsLike, ids
from calibrank.adapters.lists import Entries, Recommendations, calibrated
from calibrank.adapters.outputs import Outputs, make_score_table
from calibrank.data.splits import Positives, draw_negatives
from calibrank.errors import DataError, DroppedRowsWarning
from calibrank.maps import CalibrationMap
from calibrank.propensity import FittedPropensity
from calibrank.tables import Frame, Index, Interactions, ScoreTable, as_interactions

# Negatives per positive: the sampling noise of the negatives is then small beside that of the
# positives.
_NEGATIVES_PER_POSITIVE = 20
_FEWEST_NEGATIVES = 10_000


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
                f"{len(held)} positives and {n_others} other pairs",
            )
        n_negatives = max(_NEGATIVES_PER_POSITIVE * len(held), _FEWEST_NEGATIVES)
        n_negatives = min(n_negatives, n_others)
        # A user is drawn in proportion to its other items, then one of these uniformly.
        owners = positives.cells // positives.n_items
        left = positives.n_items - np.bincount(owners, minlength=positives.n_users)
        negative_users = rng.choice(positives.n_users, n_negatives, p=left / left.sum())
        negative_items = draw_negatives(positives, negative_users, rng)
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


class PairModel(ABC):
    """A trained model that scores pairs of user and item ids."""

    outputs: Outputs

    def score(self, users: IdsLike, items: IdsLike) -> Floats:
        """One score per pair, on the scale to calibrate; NaN where the model has none."""
        checked = ids("users", users)
        return self.outputs.scores(self._score(checked, ids("items", items, len(checked))))

    def score_table(
        self,
        validation: Interactions | Frame,
        train: Interactions | Frame | None = None,
        propensity: FittedPropensity | None = None,
        seed: int | np.random.Generator = 0,
    ) -> ScoreTable:
        """Validation interactions with this model's scores, to fit a calibrator on.

        Where `validation` holds positives only, pass the `train` log too. Negatives are then drawn
        from the pairs outside both logs and weighted so that every pair outside training has total
        weight 1; `propensity` must be P(observed) in the two logs together. Rows that the model
        cannot score are dropped with a warning. Either log may be a dataframe with columns user,
        item and label.

        Where `validation` holds impressions, dislikes included, leave `train` out, pass
        `Exposure().fit(log)` as propensity, and fit on `score_table(...).impressions()`.
        """
        pairs = as_interactions(validation)
        unseen = None
        if train is not None:
            n_dislikes = len(pairs) - int(np.count_nonzero(pairs.labels))
            if n_dislikes:
                warnings.warn(
                    f"{n_dislikes:,} validation rows with label 0 are left out: with a train log, "
                    "negatives are sampled from unobserved pairs. To keep dislikes, leave train "
                    "out and fit on score_table(validation, propensity=Exposure().fit(log))"
                    ".impressions().",
                    DroppedRowsWarning,
                    stacklevel=2,
                )
            unseen = UnseenPairs.of(pairs, as_interactions(train), seed)
            pairs = unseen.pairs
        observed = None if propensity is None else propensity.predict(pairs.users, pairs.items)
        if unseen is not None and observed is not None:
            observed = unseen.propensity(observed)
        scores = self.score(pairs.users, pairs.items)
        weights = None if unseen is None else unseen.weights
        return make_score_table(pairs.users, pairs.items, scores, pairs.labels, observed, weights)

    def recommend(
        self, fitted: CalibrationMap, users: IdsLike, k: int = 10, columns: Any = None
    ) -> Recommendations:
        """The `k` best items of each user with their probabilities, without padding and history.

        `columns` has the columns of the map's terms, one value per user; a rank is not given.
        """
        checked = ids("users", users)
        if k < 1:
            raise DataError("k", "be 1 or more", k)
        result = calibrated(fitted, checked, self._lists(checked, k), self.outputs, columns, k)
        n_users = len(np.unique(checked))
        n_missing = n_users - len(np.intersect1d(checked, result.users))
        if n_missing:
            warnings.warn(
                f"{n_missing:,} of {n_users:,} users get no recommendation: the model does not "
                "know them or has no item left for them.",
                DroppedRowsWarning,
                stacklevel=2,
            )
        return result

    @abstractmethod
    def _score(self, users: Ids, items: Ids) -> Floats: ...

    @abstractmethod
    def _lists(self, users: Ids, k: int) -> Entries:
        """The best items of each user that are not history."""
