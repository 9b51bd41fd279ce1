"""The base class of adapters for models that score users and items."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrank._internal.validation import Floats, Ids, IdsLike, ids
from calibrank.adapters.history import History
from calibrank.adapters.lists import PaddedLists, Recommendations, calibrated
from calibrank.adapters.outputs import Outputs
from calibrank.adapters.score_tables import make_score_table
from calibrank.adapters.unseen_pairs import UnseenPairs
from calibrank.errors import DataError, DroppedRowsWarning
from calibrank.maps import CalibrationMap
from calibrank.propensity.propensity import FittedPropensity
from calibrank.tables import Frame, Interactions, ScoreTable, as_interactions


class PairModel(ABC):
    """A trained model that scores pairs of user and item ids."""

    outputs: Outputs
    history: History | None = None
    """Pairs to leave out of recommendations, where the model does not do so itself."""

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
        if train is None:
            return self._score_table(pairs, propensity)
        _warn_of_dislikes(pairs)
        unseen = UnseenPairs.of(pairs, as_interactions(train), seed)
        return self._score_table(unseen.pairs, propensity, unseen)

    def _score_table(
        self,
        pairs: Interactions,
        fitted: FittedPropensity | None,
        unseen: UnseenPairs | None = None,
    ) -> ScoreTable:
        propensity = None if fitted is None else fitted.predict(pairs.users, pairs.items)
        if unseen is not None and propensity is not None:
            propensity = unseen.propensity(propensity)
        scores = self.score(pairs.users, pairs.items)
        weights = None if unseen is None else unseen.weights
        # The warnings should point at the caller of `score_table`.
        return make_score_table(
            pairs.users, pairs.items, scores, pairs.labels, propensity, weights, stacklevel=4
        )

    def recommend(
        self, fitted: CalibrationMap, users: IdsLike, k: int = 10, columns: Any = None
    ) -> Recommendations:
        """The `k` best items of each user with their probabilities, without padding and history.

        `columns` has the columns of the map's terms, one value per user; a rank is not given.
        """
        checked = ids("users", users)
        if k < 1:
            raise DataError("k", "be 1 or more", got=k)
        lists = self._lists(checked, k)
        hidden = self._hidden(checked, lists)
        result = calibrated(fitted, checked, lists, self.outputs, columns, hidden, k)
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

    def _hidden(self, users: Ids, lists: PaddedLists) -> npt.NDArray[np.bool_] | None:
        """Filled slots that must not be shown, such as history."""
        return None if self.history is None else self.history.hidden(users, lists.items)

    @abstractmethod
    def _score(self, users: Ids, items: Ids) -> Floats: ...

    @abstractmethod
    def _lists(self, users: Ids, k: int) -> PaddedLists: ...


def _warn_of_dislikes(validation: Interactions) -> None:
    """Warn that shown pairs that were not liked become unobserved pairs."""
    n_dislikes = len(validation) - int(np.count_nonzero(validation.labels))
    if n_dislikes:
        warnings.warn(
            f"{n_dislikes:,} validation rows with label 0 are left out: with a train log, "
            "negatives are sampled from unobserved pairs. To keep dislikes, leave train out and "
            "fit on score_table(validation, propensity=Exposure().fit(log)).impressions().",
            DroppedRowsWarning,
            stacklevel=3,
        )
