"""LensKit, from 2025 on: trained pipelines."""

from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from calibrank._validation import Floats, Ids
from calibrank.adapters.lists import Lists
from calibrank.adapters.outputs import Margin, Outputs, plain
from calibrank.adapters.pair_model import PairModel
from calibrank.errors import MissingExtraError

_MARGIN = Margin()


class LensKit(PairModel):
    """A trained LensKit pipeline, by the ids of its dataset.

    Scores are the `scorer`'s, not the `rating-predictor`'s, which may fall back to another model without saying so. Its
    own candidate selector leaves out history.
    """

    def __init__(self, pipeline: Any, outputs: Outputs = _MARGIN) -> None:
        self.pipeline, self.outputs = pipeline, outputs

    def _score(self, users: Ids, items: Ids) -> Floats:
        lenskit = _lenskit()
        scores = np.full(len(users), np.nan)
        order = np.argsort(users, kind="stable")
        people, starts = np.unique(users[order], return_index=True)
        for person, rows in zip(people, np.split(order, starts[1:]), strict=True):
            distinct, which = np.unique(items[rows], return_inverse=True)
            scored = lenskit.score(self.pipeline, person.item(), distinct)
            scores[rows] = plain(scored.scores())[which]
        return scores

    def _lists(self, users: Ids, k: int) -> Lists:
        lenskit = _lenskit()
        lists = [lenskit.recommend(self.pipeline, user.item(), k) for user in users]
        return Lists.of(
            [(found.ids(), np.empty(0) if not len(found) else found.scores()) for found in lists]
        )


def _lenskit() -> ModuleType:
    try:
        lenskit = import_module("lenskit")
    except ImportError:
        raise MissingExtraError("lenskit", "lenskit") from None
    if not hasattr(lenskit, "score"):  # the pipelines of 2025 brought it
        raise MissingExtraError("lenskit 2025 or newer", "lenskit")
    return lenskit
