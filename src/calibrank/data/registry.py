"""Datasets by name, and any table by its path."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from calibrank.data.coat import load_coat
from calibrank.data.dataset import Dataset
from calibrank.data.download import SOURCES, fetch
from calibrank.data.kuai import load_kuairand, load_kuairec
from calibrank.data.table import load_table
from calibrank.data.yahoo_r3 import load_yahoo_r3
from calibrank.errors import DataError

LOADERS: dict[str, Callable[[Path], Dataset]] = {
    "coat": load_coat,
    "yahoo_r3": load_yahoo_r3,
    "kuairec": load_kuairec,
    "kuairand": load_kuairand,
}


def load_named(name: str, folder: str | Path | None = None) -> Dataset:
    """A dataset by name from the folder of its official files; without a folder, downloaded where its licence allows.

    A folder that holds `train.parquet` and `test.parquet` instead is read as tables of user, item and label.
    """
    if name not in LOADERS:
        raise DataError(f"the dataset must be one of {', '.join(LOADERS)}, got {name!r}.")
    if folder is None and name in SOURCES:
        folder = fetch(name)
    if folder is None:
        return LOADERS[name](Path(name))  # whose message says where to get it
    folder = Path(folder)
    if (folder / "train.parquet").is_file():
        test = folder / "test.parquet"
        return replace(load_table(folder / "train.parquet", test if test.is_file() else None), name=name)
    return LOADERS[name](folder)
