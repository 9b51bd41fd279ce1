"""The paper's published numbers, and how many of them our runs reproduce.

A published number is one run. It agrees if it lies in the 95% prediction interval of one more run
of ours; it is beaten if our mean is better.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from calibrank.errors import DataError
from calibrank.experiment.results import RANKING, Fit, Protocol, Spread

PARAMETRIC = ("Platt", "Beta", "Gaussian", "Gamma")
PUBLISHED_ROWS = (
    ("uncalibrated", Fit("MinMax", "none")),
    ("uncalibrated", Fit("Sigmoid", "none")),
    ("non-parametric", Fit("Histogram", "naive")),
    ("non-parametric", Fit("Isotonic", "naive")),
    ("non-parametric", Fit("BBQ", "naive")),
    *[("parametric, naive", Fit(method, "naive")) for method in PARAMETRIC],
    *[("parametric, UERM", Fit(method, "ips")) for method in PARAMETRIC],
)
"""Group and fit of each row of the paper's Tables 1, 4 and 5.

UERM is the paper's unbiased empirical risk minimization.
"""
LOSS_SUFFIXES = {"none": "", "naive": ", naive", "positive_ips": ", positive_ips", "ips": ", UERM"}
OUR_METRICS = {"ECE": "ECE", "MCE": "ReleasedMCE", "NLL": "LogLoss"}
"""Our metric for each of the paper's; ranking metrics have the same names."""
DATASET_TITLES = {"yahoo_r3": "Yahoo!R3", "coat": "Coat"}
"""The paper's names of its datasets."""
UNKNOWN = "we do not know"
_LOSS_COLUMNS = {"none": "uncalibrated", "naive": "naive", "ips": "UERM", "": "ranking"}

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
    def agrees(self) -> bool:
        """Whether the number lies in the range of one run of ours."""
        if self.ours is None:
            return False
        return abs(self.published.value - self.ours.mean) <= self.ours.prediction_half

    @property
    def met(self) -> bool:
        """Whether the number agrees, or our mean is better."""
        if self.ours is None or self.agrees:
            return self.agrees
        # Higher is better for ranking metrics only.
        is_higher = self.ours.mean > self.published.value
        return is_higher != (self.published.metric in OUR_METRICS)


@dataclass(frozen=True, slots=True)
class Published:
    """The paper's numbers by metric, method, loss, dataset and model, and reasons."""

    values: dict[tuple[str, ...], PublishedNumber]
    reasons: list[dict[str, str]]
    """Why numbers are outside: patterns of columns, of which the first that matches counts."""

    @classmethod
    def beside(cls, folder: Path) -> Published:
        """Read `published.csv` of a folder of specs or of the one above, and `reasons.csv`.

        Specs of one's own need neither. An empty column of a reason matches everything.
        """
        file = folder / "published.csv"
        file = file if file.is_file() else folder.parent / file.name
        values: dict[tuple[str, ...], PublishedNumber] = {}
        for row in _read_csv(file):
            named: dict[str, Any] = {key: _OUR_NAMES.get(text, text) for key, text in row.items()}
            try:
                number = PublishedNumber(**{**named, "value": float(row["value"])})
            except (KeyError, TypeError, ValueError):
                rule = f"have the columns {', '.join(PublishedNumber._fields)}"
                raise DataError(file, rule, f"a row {row}", "Correct it, or delete it.") from None
            values[number[1:6]] = number
        return cls(values, _read_csv(folder / "reasons.csv"))

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

    def reason_for(self, number: PublishedNumber) -> str:
        """The known reason why a number is outside, or that there is none."""
        values = number._asdict()
        for pattern in self.reasons:
            columns = {name: value for name, value in pattern.items() if name != "reason" and value}
            if all(values[name] == value for name, value in columns.items()):
                return pattern["reason"]
        return UNKNOWN


def _read_csv(file: Path) -> list[dict[str, str]]:
    if not file.is_file():
        return []
    with file.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


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


def table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(cells) + " |\n" for cells in (names, *rows)]
    return "".join([lines[0], "|---" * len(names) + "|\n", *lines[1:]])


def agreement_table(comparisons: Sequence[Comparison]) -> str:
    """Numbers met, of all, by table, dataset and loss."""
    tables = sorted({each.published.table for each in comparisons})
    datasets = list(dict.fromkeys(each.published.dataset for each in comparisons))
    wanted = [{"table": number, "dataset": dataset} for number in tables for dataset in datasets]
    wanted += [{"dataset": dataset} for dataset in datasets]
    rows = []
    for columns in [*wanted, {}]:
        found = _where(comparisons, **columns)
        metrics = dict.fromkeys(each.published.metric.partition("@")[0] for each in found)
        name = f"{columns['table']}: {', '.join(metrics)}" if "table" in columns else "all"
        dataset = columns.get("dataset", "all")
        cells = [_count(_where(found, loss=loss)) for loss in _LOSS_COLUMNS]
        rows.append([name, DATASET_TITLES.get(dataset, dataset), *cells, _count(found)])
    return table(["table", "dataset", *_LOSS_COLUMNS.values(), "all"], rows)


def outside_table(comparisons: Sequence[Comparison], published: Published) -> str:
    """The numbers that are not met, by row of the paper's tables, with the reason if known."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for each in comparisons:
        if each.met:
            continue
        number = each.published
        row = number.method + LOSS_SUFFIXES.get(number.loss, "")
        dataset = DATASET_TITLES.get(number.dataset, number.dataset)
        key = (f"{number.table}: {number.metric}", dataset, row or "ranking")
        ours = "no result"
        if each.ours is not None:
            ours = f"{each.ours.mean:.4f} ±{each.ours.prediction_half:.4f}"
        text = f"{number.model} {number.value:.4f} → {ours}"
        groups.setdefault((*key, published.reason_for(number)), []).append(text)
    rows = [(*key, "; ".join(numbers), reason) for (*key, reason), numbers in groups.items()]
    return table(["table", "dataset", "row", "published → ours", "reason"], rows)


def _where(comparisons: Sequence[Comparison], **columns: str) -> list[Comparison]:
    """Those whose published number has these values."""
    found = list(comparisons)
    for name, value in columns.items():
        found = [each for each in found if getattr(each.published, name) == value]
    return found


def _count(comparisons: Sequence[Comparison]) -> str:
    met = sum(each.met for each in comparisons)
    return f"{met} of {len(comparisons)}" if comparisons else ""
