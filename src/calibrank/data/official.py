"""Datasets in their official files: Coat, Yahoo!R3, KuaiRec and KuaiRand-Pure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrank._internal.arguments import path_of, text
from calibrank._internal.rules import Range
from calibrank._internal.validation import Floats
from calibrank.data.table import Dataset, dataset_from_logs, read_log
from calibrank.errors import DataError
from calibrank.tables import Index, Interactions

IsValid = Callable[[npt.NDArray[Any]], npt.NDArray[np.bool_]]


def read_numbers(
    path: Path, columns: int, is_valid: IsValid, description: str, delimiter: str | None = None
) -> Floats:
    """Lines of `columns` numbers as rows of a matrix; an invalid line is an error that names it.

    `is_valid` checks the numbers; `description` says in a message what a line must hold.
    """
    try:
        values: Floats = np.loadtxt(path, delimiter=delimiter, ndmin=2, comments=None)
    except ValueError:
        values = np.empty((0, 0))
    if values.size and values.shape[1] == columns and is_valid(values).all():
        return values
    # Read once more, line by line, to name the first that is wrong.
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    for number, line in enumerate(lines, 1):
        where = f"{path}, line {number}"
        cells = line.split(delimiter)
        if line.strip() and len(cells) != columns:
            raise DataError(where, f"hold {columns} numbers", len(cells))
        try:
            is_right = is_valid(np.array([cells], dtype=np.float64)).all() if cells else True
        except ValueError:
            is_right = False
        if not is_right:
            raise DataError(where, f"hold {description}", f"{line.strip()[:80]!r}")
    raise DataError(path, f"hold lines of {columns} numbers", f"{len(lines)} lines")


# Archives hold their files in up to two folders; deeper down lie other things.
_DEPTH = 3


def find_file(folder: Path, name: str, how_to_get: str) -> Path:
    """A file in the folder or below it; `how_to_get` ends the message if it is missing."""
    found = files_below(folder, name)
    if not found:
        raise DataError(folder, f"hold {name}", "no such file", how_to_get)
    return found[0]


def files_below(folder: Path, name: str) -> list[Path]:
    """The file of this name in the folder or a few levels below it, if there is one."""
    found: list[Path] = []
    for depth in range(_DEPTH + 1):
        found += sorted(folder.glob("*/" * depth + name))
    if len(found) > 1:
        rule, remedy = f"hold one {name}", "Name the folder of one of them."
        raise DataError(folder, rule, f"{len(found)}, such as {found[0]} and {found[1]}", remedy)
    return found


# Higher ratings are positives, and videos watched for more than so many times their length.
_LIKED_ABOVE = 3
_WATCHED_ABOVE = 2

# The files have one line per user and one column per item.
COAT_USERS = 290
COAT_ITEMS = 300
_GET_COAT = "Get Coat from https://www.cs.cornell.edu/~schnabts/mnar/coat.zip and unpack it."


def load_coat(folder: str | Path) -> Dataset:
    """Load Coat from its official files `train.ascii` and `test.ascii`.

    A rating of 4 or 5 is a positive, as in the paper. Features and propensities are loaded if
    their files are in the folder.
    """
    folder = path_of("folder", folder)
    return Dataset(
        "coat",
        _coat_ratings(find_file(folder, "train.ascii", _GET_COAT)),
        _coat_ratings(find_file(folder, "test.ascii", _GET_COAT)),
        Index(np.arange(COAT_USERS)),
        Index(np.arange(COAT_ITEMS)),
        _read_if_there(folder, "user_features.ascii", np.isfinite, "numbers"),
        _read_if_there(folder, "item_features.ascii", np.isfinite, "numbers"),
        _read_if_there(
            folder, "propensities.ascii", Range("(0, 1]").holds, "probabilities above 0"
        ),
        log="impressions",
    )


def _coat_ratings(path: Path) -> Interactions:
    ratings = read_numbers(
        path,
        COAT_ITEMS,
        lambda values: np.isin(values, range(6)),
        "ratings 1 to 5, or 0 where not rated",
    )
    if len(ratings) != COAT_USERS:
        raise DataError(
            path,
            f"hold one line per user, {COAT_USERS} in all",
            f"{len(ratings)}: it is cut or another file",
            _GET_COAT,
        )
    users, items = np.nonzero(ratings)
    given = ratings[users, items]
    labels = (given > _LIKED_ABOVE).astype(np.float64)
    return Interactions(users, items, labels, COAT_USERS, COAT_ITEMS, ratings=given)


def _read_if_there(folder: Path, name: str, is_valid: IsValid, description: str) -> Floats | None:
    found = files_below(folder, name)
    if not found:
        return None
    # The number of features is not documented: count the columns of the first line.
    with found[0].open(encoding="utf-8") as file:
        width = len(file.readline().split())
    return read_numbers(found[0], width, is_valid, description)


YAHOO_USERS = 15_400
YAHOO_ITEMS = 1_000
_GET_YAHOO_R3 = (
    "Yahoo! licenses R3 to those who sign for it: ask at https://webscope.sandbox.yahoo.com (R3), "
    "unpack it, and name the folder."
)


def load_yahoo_r3(folder: str | Path) -> Dataset:
    """Load Yahoo!R3 from its official files `ydata-ymusic-rating-study-v1_0-{train,test}.txt`.

    A rating of 4 or 5 is a positive, as in the paper.
    """
    folder = path_of("folder", folder)
    return Dataset(
        "yahoo_r3",
        _read(folder, "train"),
        _read(folder, "test"),
        Index(np.arange(1, YAHOO_USERS + 1)),
        Index(np.arange(1, YAHOO_ITEMS + 1)),
        log="impressions",
    )


def _read(folder: Path, part: str) -> Interactions:
    path = find_file(folder, f"ydata-ymusic-rating-study-v1_0-{part}.txt", _GET_YAHOO_R3)
    description = f"a user 1 to {YAHOO_USERS}, a song 1 to {YAHOO_ITEMS} and a rating 1 to 5"
    rows = read_numbers(path, 3, _is_rating, description, "\t")
    # Ids in the files count from 1.
    users = rows[:, 0].astype(np.intp) - 1
    items = rows[:, 1].astype(np.intp) - 1
    labels: Floats = (rows[:, 2] > _LIKED_ABOVE).astype(np.float64)
    return Interactions(users, items, labels, YAHOO_USERS, YAHOO_ITEMS, ratings=rows[:, 2])


def _is_rating(rows: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    highest = np.array([YAHOO_USERS, YAHOO_ITEMS, 5])
    return (rows >= 1) & (rows <= highest) & (rows == np.floor(rows))


_GET_KUAIREC = "Get KuaiRec from https://zenodo.org/records/18164998 and unpack it."
_GET_KUAIRAND = "Get KuaiRand-Pure from https://zenodo.org/records/10439422 and unpack it."
_STANDARD_LOGS = ("log_standard_4_08_to_4_21_pure.csv", "log_standard_4_22_to_5_08_pure.csv")
_RANDOM_LOG = "log_random_4_22_to_5_08_pure.csv"


def load_kuairec(folder: str | Path) -> Dataset:
    """Load KuaiRec from its official files.

    `big_matrix.csv` is the log, `small_matrix.csv` the fully observed test block. A video is a
    positive if it was watched for more than twice its length.
    """
    root = path_of("folder", folder)
    columns = {"user": "user_id", "item": "video_id", "label": "watch_ratio", "time": "timestamp"}
    logs = []
    for name in ("big_matrix.csv", "small_matrix.csv"):
        file = find_file(root, name, _GET_KUAIREC)
        logs.append(read_log([file], columns, lambda ratio: ratio > _WATCHED_ABOVE))
    return dataset_from_logs("kuairec", logs, "impressions")


def load_kuairand(folder: str | Path, label: str = "is_click") -> Dataset:
    """Load KuaiRand-Pure from its official files.

    The two standard logs are the training log; the log of randomly inserted videos is the test set.
    `label` names the column that is the label.
    """
    root = path_of("folder", folder)
    columns = {"user": "user_id", "item": "video_id", "label": text("label", label)}
    columns["time"] = "time_ms"
    names = (*_STANDARD_LOGS, _RANDOM_LOG)
    *standard, test = [find_file(root, name, _GET_KUAIRAND) for name in names]
    logs = [read_log(standard, columns), read_log([test], columns)]
    return dataset_from_logs("kuairand", logs, "impressions")
