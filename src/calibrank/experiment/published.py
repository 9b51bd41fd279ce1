"""The paper's published numbers, and the rows of its tables."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

PUBLISHED_ROWS = (
    ("uncalibrated", "MinMax", "none"),
    ("uncalibrated", "Sigmoid", "none"),
    ("non-parametric", "Histogram", "naive"),
    ("non-parametric", "Isotonic", "naive"),
    ("non-parametric", "BBQ", "naive"),
    ("parametric, naive", "Platt", "naive"),
    ("parametric, naive", "Beta", "naive"),
    ("parametric, naive", "Gaussian", "naive"),
    ("parametric, naive", "Gamma", "naive"),
    ("parametric, UERM", "Platt", "ips"),
    ("parametric, UERM", "Beta", "ips"),
    ("parametric, UERM", "Gaussian", "ips"),
    ("parametric, UERM", "Gamma", "ips"),
)
"""Group, method and loss of each row of the paper's Tables 1, 4 and 5."""
PARAMETRIC = ("Platt", "Beta", "Gaussian", "Gamma")
PROPOSED = ("Gaussian", "Gamma")
"""The methods that the paper proposes, with UERM (unbiased empirical risk minimization)."""
COMPETITORS = ("Platt", "Beta")
"""Those that it compares them with, also with UERM, in the row "Improv" of Table 1."""
LOSS_SUFFIXES = {"none": "", "naive": ", naive", "positive_ips": ", positive_ips", "ips": ", UERM"}
OUR_METRICS = {"ECE": "ECE", "MCE": "ReleasedMCE", "NLL": "LogLoss"}
"""Our metric for each of the paper's; ranking metrics have the same names."""
TABLE_TITLES = {
    "ECE": "Table 1: expected calibration error",
    "MCE": "Table 4: maximum calibration error",
    "NLL": "Table 5: negative log-likelihood",
}
RANKING_NAMES = ("NDCG@1", "NDCG@3", "NDCG@5", "Recall@1", "Recall@3", "Recall@5")
DATASET_TITLES = {"yahoo_r3": "Yahoo!R3", "coat": "Coat"}

# The paper's names where they differ from ours.
_OUR_METHODS = {"Hist": "Histogram"}
_OUR_LOSSES = {"uerm": "ips"}


class Fit(NamedTuple):
    """A method with a loss."""

    method: str
    loss: str


class PublishedNumber(NamedTuple):
    """One number of the paper, with our names of method and loss."""

    table: str
    metric: str
    method: str
    loss: str
    dataset: str
    model: str
    value: float


@dataclass(frozen=True, slots=True)
class Published:
    """The paper's numbers by metric, method, loss, dataset and model."""

    values: dict[tuple[str, ...], PublishedNumber]

    @classmethod
    def load(cls, path: Path) -> Published:
        """Read a CSV file with one row per number."""
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        values: dict[tuple[str, ...], PublishedNumber] = {}
        for row in rows:
            number = PublishedNumber(
                row["table"],
                row["metric"],
                _OUR_METHODS.get(row["method"], row["method"]),
                _OUR_LOSSES.get(row["loss"], row["loss"]),
                row["dataset"],
                row["model"],
                float(row["value"]),
            )
            values[number[1:6]] = number
        return cls(values)

    @classmethod
    def beside(cls, folder: Path) -> Published:
        """Read `published.csv` of a folder of specs, or of the folder above it."""
        file = folder / "published.csv"
        return cls.load(file if file.is_file() else folder.parent / "published.csv")

    def find(self, metric: str, method: str, loss: str, dataset: str, model: str) -> float | None:
        """A published number, or None if the paper does not report it."""
        number = self.values.get((metric, method, loss, dataset, model))
        return None if number is None else number.value

    def of_dataset(self, dataset: str) -> Iterator[PublishedNumber]:
        """The numbers of one dataset, in the order of the file."""
        for number in self.values.values():
            if number.dataset == dataset:
                yield number
