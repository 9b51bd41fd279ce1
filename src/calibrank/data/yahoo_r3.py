"""Yahoo!R3: song ratings of 15,400 users, and of 10 randomly drawn songs for 5,400 of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrank._internal.arguments import path_of, real
from calibrank._internal.validation import Floats
from calibrank.data.dataset import Dataset
from calibrank.data.text import NumericText, find_file
from calibrank.tables import Index, Interactions

USERS = 15_400
ITEMS = 1_000
_HOW_TO_GET = (
    "Yahoo! licenses R3 to those who sign for it: ask at https://webscope.sandbox.yahoo.com (R3), "
    "unpack it, and name the folder."
)


def load_yahoo_r3(folder: str | Path, liked_above: float = 3) -> Dataset:
    """Load Yahoo!R3 from its official files `ydata-ymusic-rating-study-v1_0-{train,test}.txt`.

    A rating above `liked_above` is a positive.
    """
    folder = path_of("folder", folder)
    liked_above = real("liked_above", liked_above)
    return Dataset(
        "yahoo_r3",
        _read(folder, "train", liked_above),
        _read(folder, "test", liked_above),
        Index(np.arange(1, USERS + 1)),
        Index(np.arange(1, ITEMS + 1)),
        log="impressions",
    )


def _read(folder: Path, part: str, liked_above: float) -> Interactions:
    path = find_file(folder, f"ydata-ymusic-rating-study-v1_0-{part}.txt", _HOW_TO_GET)
    description = f"a user 1 to {USERS}, a song 1 to {ITEMS} and a rating 1 to 5"
    rows = NumericText(path, 3, _is_rating, description, "\t").read()
    # Ids in the files count from 1.
    users = rows[:, 0].astype(np.intp) - 1
    items = rows[:, 1].astype(np.intp) - 1
    labels: Floats = (rows[:, 2] > liked_above).astype(np.float64)
    return Interactions(users, items, labels, USERS, ITEMS, ratings=rows[:, 2])


def _is_rating(rows: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    highest = np.array([USERS, ITEMS, 5])
    return (rows >= 1) & (rows <= highest) & (rows == np.floor(rows))
