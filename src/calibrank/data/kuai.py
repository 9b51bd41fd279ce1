"""KuaiRec and KuaiRand-Pure: logs of a video app with unbiased test sets.

In KuaiRec's test block every user watched every video; KuaiRand inserted videos at random.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrank._internal.arguments import path_of, real, text
from calibrank.data.dataset import Dataset
from calibrank.data.table import (
    ColumnNames,
    RawLog,
    dataset_from_logs,
    find_table,
    read_log,
    with_same_ids,
)
from calibrank.data.text import find_file

_GET_KUAIREC = "Get KuaiRec with `calibrank.data.fetch('kuairec')` or from https://kuairec.com."
_GET_KUAIRAND = (
    "Get KuaiRand-Pure with `calibrank.data.fetch('kuairand')` or from https://kuairand.com."
)
_STANDARD_LOGS = ("log_standard_4_08_to_4_21_pure.csv", "log_standard_4_22_to_5_08_pure.csv")
_RANDOM_LOG = "log_random_4_22_to_5_08_pure.csv"


def load_kuairec(folder: str | Path, liked_above: float = 2) -> Dataset:
    """Load KuaiRec from its official files.

    `big_matrix.csv` is the log, `small_matrix.csv` the fully observed test block. A video is a
    positive if it was watched for more than `liked_above` times its length.
    """
    root = path_of("folder", folder)
    liked_above = real("liked_above", liked_above)
    columns = ColumnNames(user="user_id", item="video_id", label="watch_ratio", time="timestamp")

    def is_positive(ratio: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        return ratio > liked_above

    def read(name: str) -> RawLog:
        path = find_file(root, name, _GET_KUAIREC)
        return read_log(find_table(path), columns, is_positive)

    train = read("big_matrix.csv")
    test = read("small_matrix.csv")
    return dataset_from_logs("kuairec", train, test, log="impressions")


def load_kuairand(folder: str | Path, label: str = "is_click") -> Dataset:
    """Load KuaiRand-Pure from its official files.

    The two standard logs are the training log; the log of randomly inserted videos is the test set.
    `label` names the column that is the label.
    """
    root = path_of("folder", folder)
    columns = ColumnNames(
        user="user_id", item="video_id", label=text("label", label), time="time_ms"
    )

    def read(name: str) -> RawLog:
        path = find_file(root, name, _GET_KUAIRAND)
        return read_log(find_table(path), columns)

    train = _concatenate([read(name) for name in _STANDARD_LOGS])
    test = read(_RANDOM_LOG)
    return dataset_from_logs("kuairand", train, test, log="impressions")


def _concatenate(logs: list[RawLog]) -> RawLog:
    logs = with_same_ids(logs)
    times = [log.times for log in logs if log.times is not None]
    return RawLog(
        np.concatenate([log.users for log in logs]),
        np.concatenate([log.items for log in logs]),
        np.concatenate([log.labels for log in logs]),
        np.concatenate(times) if times else None,
    )
