"""What every model of users and items can do here: score pairs, make a score table, recommend with probabilities."""

import warnings
from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt

from calibrank._validation import Floats, Ids, IdsLike, ids
from calibrank.adapters.lists import Lists, Recommendations, calibrated
from calibrank.adapters.outputs import Outputs
from calibrank.adapters.score_tables import tabulate
from calibrank.adapters.unseen import Unseen
from calibrank.errors import DataError, DroppedRowsWarning
from calibrank.maps import CalibrationMap
from calibrank.propensity.propensity import FittedPropensity
from calibrank.tables import Interactions, ScoreTable


class PairModel(ABC):
    """Someone's trained model, seen as scores of users and items by the ids that people use."""

    outputs: Outputs

    def score(self, users: IdsLike, items: IdsLike) -> Floats:
        """A score a pair, on the scale to calibrate; NaN where the model has none."""
        people = ids("users", users)
        return self.outputs.scores(self._score(people, ids("items", items, len(people))))

    def score_table(
        self,
        validation: Interactions,
        train: Interactions | None = None,
        propensity: FittedPropensity | None = None,
        rng: np.random.Generator | None = None,
    ) -> ScoreTable:
        """Validation interactions with this model's scores: what to calibrate on.

        Where `validation` holds positives only, hand in the `train` log too. They are then set against pairs drawn from
        outside both logs, weighted so that every pair not in training counts once, and `propensity` is P(observed) in
        the two logs together. Rows the model cannot score are left out with a warning.
        """
        unseen = (
            None if train is None else Unseen.of(validation, train, rng or np.random.default_rng(0))
        )
        pairs, weights = (validation, None) if unseen is None else (unseen.pairs, unseen.weights)
        seen = None if propensity is None else propensity.predict(pairs.users, pairs.items)
        if unseen is not None and seen is not None:
            seen = unseen.propensity(seen)
        return tabulate(
            pairs.users,
            pairs.items,
            self.score(pairs.users, pairs.items),
            pairs.labels,
            seen,
            weights,
        )

    def recommend(self, fitted: CalibrationMap, users: IdsLike, k: int = 10) -> Recommendations:
        """Each user's `k` best items with their probabilities, without padding and history."""
        people = ids("users", users)
        if k < 1:
            raise DataError(f"k must be 1 or more, got {k}.")
        lists = self._lists(people, k)
        result = calibrated(fitted, people, lists, self.outputs, self._hidden(people, lists), k)
        served = len(np.intersect1d(people, result.users))
        asked = len(np.unique(people))
        if served < asked:
            warnings.warn(
                f"{asked - served:,} of {asked:,} users get no recommendation: the model does not know them or "
                "has nothing left to show.",
                DroppedRowsWarning,
                stacklevel=2,
            )
        return result

    def _hidden(self, users: Ids, lists: Lists) -> npt.NDArray[np.bool_] | None:
        """Slots to leave out for another reason than being empty."""
        return None

    @abstractmethod
    def _score(self, users: Ids, items: Ids) -> Floats: ...

    @abstractmethod
    def _lists(self, users: Ids, k: int) -> Lists: ...
