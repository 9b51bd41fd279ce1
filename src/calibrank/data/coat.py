"""Coat Shopping (Schnabel et al., ICML 2016): 290 people rated 24 coats of their choice and 16 drawn at random."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrank._validation import Floats
from calibrank.data.dataset import Dataset
from calibrank.data.text import Numbers, find_file
from calibrank.tables import Index, Interactions

USERS, ITEMS = 290, 300
_WHERE = "Get Coat with `calibrank.data.fetch('coat')` or from https://www.cs.cornell.edu/~schnabts/mnar/."


def load_coat(folder: str | Path, liked_above: float = 3) -> Dataset:
    """The official layout: `train.ascii`, `test.ascii`, and features and propensities where they are there too."""
    folder = Path(folder)
    ratings = [
        _matrix(find_file(folder, f"{part}.ascii", _WHERE), ITEMS) for part in ("train", "test")
    ]
    people = max(len(matrix) for matrix in ratings)
    train, test = (_interactions(matrix, liked_above, people) for matrix in ratings)
    return Dataset(
        "coat",
        train,
        test,
        Index(np.arange(people)),
        Index(np.arange(ITEMS)),
        _features(folder, "user_features.ascii"),
        _features(folder, "item_features.ascii"),
        _propensity(folder),
    )


def _matrix(path: Path, columns: int) -> Floats:
    def is_rating(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        return np.isin(values, range(6))

    return Numbers(path, columns, is_rating, "ratings 1 to 5, or 0 where not rated").read()


def _interactions(ratings: Floats, liked_above: float, people: int) -> Interactions:
    users, items = np.nonzero(ratings)
    return Interactions(
        users, items, (ratings[users, items] > liked_above).astype(np.float64), people, ITEMS
    )


def _features(folder: Path, name: str) -> Floats | None:
    found = sorted(folder.rglob(name))
    if not found:
        return None
    with found[0].open() as file:
        width = len(file.readline().split())
    return Numbers(found[0], width, np.isfinite, "numbers").read()


def _propensity(folder: Path) -> Floats | None:
    found = sorted(folder.rglob("propensities.ascii"))
    if not found:
        return None

    def is_propensity(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        return (values > 0) & (values <= 1)

    return Numbers(found[0], ITEMS, is_propensity, "probabilities above 0").read()
