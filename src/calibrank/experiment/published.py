"""The paper's published numbers, and how many of them our runs reproduce.

A published number is one run. It agrees if it lies in the 95% prediction interval of one more run
of ours; it is beaten if our mean is better.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from calibrank.experiment.protocol import RANKING, Fit, Protocol
from calibrank.experiment.statistics import Spread

PARAMETRIC = ("Platt", "Beta", "Gaussian", "Gamma")
PROPOSED = ("Gaussian", "Gamma")
"""The methods that the paper proposes, with UERM (unbiased empirical risk minimization)."""
COMPETITORS = ("Platt", "Beta")
"""Those that it compares them with, also with UERM, in the row "Improv" of Table 1."""
PUBLISHED_ROWS = (
    ("uncalibrated", Fit("MinMax", "none")),
    ("uncalibrated", Fit("Sigmoid", "none")),
    ("non-parametric", Fit("Histogram", "naive")),
    ("non-parametric", Fit("Isotonic", "naive")),
    ("non-parametric", Fit("BBQ", "naive")),
    *[("parametric, naive", Fit(method, "naive")) for method in PARAMETRIC],
    *[("parametric, UERM", Fit(method, "ips")) for method in PARAMETRIC],
)
"""Group and fit of each row of the paper's Tables 1, 4 and 5."""
LOSS_SUFFIXES = {"none": "", "naive": ", naive", "positive_ips": ", positive_ips", "ips": ", UERM"}
OUR_METRICS = {"ECE": "ECE", "MCE": "ReleasedMCE", "NLL": "LogLoss"}
"""Our metric for each of the paper's; ranking metrics have the same names."""
DATASET_TITLES = {"yahoo_r3": "Yahoo!R3", "coat": "Coat"}
UNKNOWN = "we do not know"

# The paper's names where they differ from ours.
_OUR_NAMES = {"Hist": "Histogram", "uerm": "ips"}


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
class Comparison:
    """A published number beside ours."""

    published: PublishedNumber
    ours: Spread | None

    @property
    def beaten(self) -> bool:
        """Whether our mean is better."""
        if self.ours is None:
            return False
        # Higher is better for ranking metrics only.
        if self.published.metric not in OUR_METRICS:
            return self.ours.mean > self.published.value
        return self.ours.mean < self.published.value

    @property
    def agrees(self) -> bool:
        """Whether the number lies in the range of one run of ours."""
        return self.ours is not None and self.ours.covers(self.published.value)

    @property
    def met(self) -> bool:
        """Whether the number agrees or is beaten."""
        return self.agrees or self.beaten


@dataclass(frozen=True, slots=True)
class Published:
    """The paper's numbers by metric, method, loss, dataset and model."""

    values: dict[tuple[str, ...], PublishedNumber]

    @classmethod
    def load(cls, path: Path) -> Published:
        """Read a CSV file with one row per number."""
        values: dict[tuple[str, ...], PublishedNumber] = {}
        with path.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                named: dict[str, Any] = {
                    key: _OUR_NAMES.get(text, text) for key, text in row.items()
                }
                number = PublishedNumber(**{**named, "value": float(row["value"])})
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

    def compare(self, protocol: Protocol) -> list[Comparison]:
        """Every published number of the protocol's dataset beside ours; empty if there are none."""
        comparisons = []
        for number in self.values.values():
            if number.dataset == protocol.dataset:
                fit = Fit(number.method, number.loss) if number.loss else RANKING
                metric = OUR_METRICS.get(number.metric, number.metric)
                ours = protocol.spread(metric, fit, number.model)
                comparisons.append(Comparison(number, ours))
        return comparisons


@dataclass(frozen=True, slots=True)
class Reasons:
    """Why numbers are outside: patterns of columns, of which the first that matches counts."""

    patterns: tuple[dict[str, str], ...] = ()

    @classmethod
    def beside(cls, folder: Path) -> Reasons:
        """Read `reasons.csv` of a folder of specs; an empty column matches everything."""
        file = folder / "reasons.csv"
        if not file.is_file():
            return cls()
        with file.open(newline="", encoding="utf-8") as lines:
            return cls(tuple(csv.DictReader(lines)))

    def find(self, number: PublishedNumber) -> str:
        """The known reason, or that there is none."""
        values = number._asdict()
        for pattern in self.patterns:
            columns = {name: value for name, value in pattern.items() if name != "reason" and value}
            if all(values[name] == value for name, value in columns.items()):
                return pattern["reason"]
        return UNKNOWN


def agreement_line(comparisons: Sequence[Comparison]) -> str:
    """The one number: how many published numbers are met; "" if none was published."""
    count = len(comparisons)
    if not count:
        return ""
    met = sum(each.met for each in comparisons)
    agreeing = sum(each.agrees for each in comparisons)
    return (
        f"**{met} of {count} published numbers ({met / count:.0%})** lie in the 95% range of one "
        f"run of ours ({agreeing}) or are beaten by our mean ({met - agreeing} more)."
    )
