"""Yahoo!R3: ratings of 1,000 songs that 15,400 people chose, and of 10 drawn at random for 5,400 of them."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrank._validation import Floats
from calibrank.data.dataset import Dataset
from calibrank.data.text import Numbers, find_file
from calibrank.tables import Index, Interactions

USERS, ITEMS = 15_400, 1_000
_WHERE = (
    "Yahoo! licenses R3 to those who sign for it: ask at https://webscope.sandbox.yahoo.com (R3), unpack it, "
    "and name the folder."
)


def load_yahoo_r3(folder: str | Path, liked_above: float = 3) -> Dataset:
    """The official layout: `ydata-ymusic-rating-study-v1_0-train.txt` and `-test.txt`."""
    folder = Path(folder)
    train, test = (_read(folder, part, liked_above) for part in ("train", "test"))
    return Dataset(
        "yahoo_r3", train, test, Index(np.arange(1, USERS + 1)), Index(np.arange(1, ITEMS + 1))
    )


def _read(folder: Path, part: str, liked_above: float) -> Interactions:
    path = find_file(folder, f"ydata-ymusic-rating-study-v1_0-{part}.txt", _WHERE)
    words = f"a user 1 to {USERS}, a song 1 to {ITEMS} and a rating 1 to 5"
    rows = Numbers(path, 3, _is_line, words, "\t").read()
    users, items = (rows[:, column].astype(np.intp) - 1 for column in (0, 1))
    labels: Floats = (rows[:, 2] > liked_above).astype(np.float64)
    return Interactions(users, items, labels, USERS, ITEMS)


def _is_line(rows: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    highest = np.array([USERS, ITEMS, 5])
    return (rows >= 1) & (rows <= highest) & (rows == np.floor(rows))
