"""Two logs of a video app: KuaiRec (a block where everyone saw everything), KuaiRand-Pure (random videos mixed in)."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrank.data.dataset import Dataset
from calibrank.data.table import Log, Named, dataset_of, read_log
from calibrank.data.text import find_file
from calibrank.tabular.read import Table

_KUAIREC = "Get KuaiRec with `calibrank.data.fetch('kuairec')` or from https://kuairec.com."
_KUAIRAND = (
    "Get KuaiRand-Pure with `calibrank.data.fetch('kuairand')` or from https://kuairand.com."
)


def load_kuairec(folder: str | Path, liked_above: float = 2) -> Dataset:
    """The official layout: `big_matrix.csv` is the log, `small_matrix.csv` the fully observed block.

    A video is liked when it was watched more than `liked_above` times its length.
    """
    columns = Named("user_id", "video_id", "watch_ratio", "timestamp")

    def like(ratio: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        return ratio > liked_above

    logs = [
        read_log(
            Table.find(str(find_file(Path(folder), f"{part}_matrix.csv", _KUAIREC))), columns, like
        )
        for part in ("big", "small")
    ]
    return dataset_of("kuairec", *logs)


def load_kuairand(folder: str | Path, label: str = "is_click") -> Dataset:
    """The official layout of KuaiRand-Pure: two standard logs, and the log of videos inserted at random."""
    columns = Named("user_id", "video_id", label, "time_ms")
    names = ("log_standard_4_08_to_4_21_pure.csv", "log_standard_4_22_to_5_08_pure.csv")
    *standard, random = (
        read_log(Table.find(str(find_file(Path(folder), name, _KUAIRAND))), columns)
        for name in (*names, "log_random_4_22_to_5_08_pure.csv")
    )
    return dataset_of("kuairand", _joined(standard), random)


def _joined(logs: list[Log]) -> Log:
    times = [log.times for log in logs if log.times is not None]
    users, items, labels = (
        np.concatenate([getattr(log, n) for log in logs]) for n in ("users", "items", "labels")
    )
    return Log(users, items, labels, np.concatenate(times) if times else None)
