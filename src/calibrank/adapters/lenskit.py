"""LensKit pipelines, version 2025 or newer."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from calibrank._internal.validation import Floats, Ids
from calibrank.adapters.lists import PaddedLists
from calibrank.adapters.outputs import Margin, Outputs, to_numpy
from calibrank.adapters.pair_model import PairModel
from calibrank.errors import MissingExtraError

_MARGIN = Margin()


class LensKit(PairModel):
    """A trained LensKit pipeline, by the ids of its dataset.

    Scores are those of the pipeline's `scorer`. The `rating-predictor` is not used because it may
    silently fall back to another model. The pipeline's own candidate selector leaves out history.
    """

    def __init__(self, pipeline: Any, outputs: Outputs = _MARGIN) -> None:
        self.pipeline = pipeline
        self.outputs = outputs

    def _score(self, users: Ids, items: Ids) -> Floats:
        lenskit = _import_lenskit()
        scores = np.full(len(users), np.nan)
        # LensKit scores distinct items of one user at a time.
        order = np.argsort(users, kind="stable")
        distinct_users, starts = np.unique(users[order], return_index=True)
        for user, rows in zip(distinct_users, np.split(order, starts[1:]), strict=True):
            distinct_items, places = np.unique(items[rows], return_inverse=True)
            scored = lenskit.score(self.pipeline, user.item(), distinct_items)
            scores[rows] = to_numpy(scored.scores())[places]
        return scores

    def _lists(self, users: Ids, k: int) -> PaddedLists:
        lenskit = _import_lenskit()
        ragged = []
        for user in users:
            found = lenskit.recommend(self.pipeline, user.item(), k)
            # An empty list has no scores to return.
            scores = found.scores() if len(found) else np.empty(0)
            ragged.append((found.ids(), scores))
        return PaddedLists.of(ragged)


def _import_lenskit() -> ModuleType:
    try:
        lenskit = import_module("lenskit")
    except ImportError:
        raise MissingExtraError("lenskit", "lenskit") from None
    # `score` came with the pipelines of 2025.
    if not hasattr(lenskit, "score"):
        raise MissingExtraError("lenskit 2025 or newer", "lenskit")
    return lenskit
