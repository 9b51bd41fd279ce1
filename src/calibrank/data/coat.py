"""Coat Shopping (Schnabel et al., ICML 2016): ratings of self-selected and of random coats.

290 users rated 24 coats of their choice (train) and 16 coats drawn at random (test).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrank._internal.arguments import path_of, real
from calibrank._internal.validation import Floats
from calibrank.data.dataset import Dataset
from calibrank.data.text import NumericText, files_below, find_file
from calibrank.errors import DataError
from calibrank.tables import Index, Interactions

# The files have one line per user and one column per item.
USERS = 290
ITEMS = 300
_HOW_TO_GET = (
    "Get Coat with `calibrank.data.fetch('coat')` "
    "or from https://www.cs.cornell.edu/~schnabts/mnar/."
)


def load_coat(folder: str | Path, liked_above: float = 3) -> Dataset:
    """Load Coat from its official files `train.ascii` and `test.ascii`.

    A rating above `liked_above` is a positive. Features and propensities are loaded if their files
    are in the folder.
    """
    folder = path_of("folder", folder)
    liked_above = real("liked_above", liked_above)
    train = _read_ratings(find_file(folder, "train.ascii", _HOW_TO_GET))
    test = _read_ratings(find_file(folder, "test.ascii", _HOW_TO_GET))
    n_users = max(len(train), len(test))
    return Dataset(
        "coat",
        _interactions(train, liked_above, n_users),
        _interactions(test, liked_above, n_users),
        Index(np.arange(n_users)),
        Index(np.arange(ITEMS)),
        _read_features(folder, "user_features.ascii"),
        _read_features(folder, "item_features.ascii"),
        _read_propensity(folder),
        log="impressions",
    )


def _read_ratings(path: Path) -> Floats:
    def is_rating(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        return np.isin(values, range(6))

    ratings = NumericText(path, ITEMS, is_rating, "ratings 1 to 5, or 0 where not rated").read()
    if len(ratings) != USERS:
        raise DataError(
            path,
            f"hold one line per user, {USERS} in all",
            got=f"{len(ratings)}: it is cut or another file",
            remedy=_HOW_TO_GET,
        )
    return ratings


def _interactions(ratings: Floats, liked_above: float, n_users: int) -> Interactions:
    users, items = np.nonzero(ratings)
    given = ratings[users, items]
    labels = (given > liked_above).astype(np.float64)
    return Interactions(users, items, labels, n_users, ITEMS, ratings=given)


def _read_features(folder: Path, name: str) -> Floats | None:
    found = files_below(folder, name)
    if not found:
        return None
    # The number of features is not documented: count the columns of the first line.
    with found[0].open(encoding="utf-8") as file:
        width = len(file.readline().split())
    return NumericText(found[0], width, np.isfinite, "numbers").read()


def _read_propensity(folder: Path) -> Floats | None:
    found = files_below(folder, "propensities.ascii")
    if not found:
        return None

    def is_propensity(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        return (values > 0) & (values <= 1)

    return NumericText(found[0], ITEMS, is_propensity, "probabilities above 0").read()
