"""How many published numbers our runs reproduce: by table, dataset and loss, and what is outside.

A published number is one run. It agrees if it lies in the 95% prediction interval of one more run
of ours; it is beaten if our mean is better.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from calibrank.experiment.markdown import header, line
from calibrank.experiment.protocol import Protocol
from calibrank.experiment.published import (
    DATASET_TITLES,
    LOSS_SUFFIXES,
    OUR_METRICS,
    Fit,
    Published,
    PublishedNumber,
)
from calibrank.experiment.statistics import Spread

UNKNOWN = "we do not know"
_LOSS_COLUMNS = {"none": "uncalibrated", "naive": "naive", "ips": "UERM", "": "ranking"}


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


def compare(protocol: Protocol, published: Published) -> list[Comparison]:
    """Every published number of the protocol's dataset beside ours; empty if there are none."""
    comparisons = []
    for number in published.of_dataset(protocol.dataset):
        metric = OUR_METRICS.get(number.metric)
        if metric is None:
            ours = protocol.ranking(number.metric, number.model)
        else:
            ours = protocol.spread(metric, Fit(number.method, number.loss), number.model)
        comparisons.append(Comparison(number, ours))
    return comparisons


def agreement_line(comparisons: Sequence[Comparison]) -> str:
    """The one number: how many published numbers are met."""
    met = sum(each.met for each in comparisons)
    agreeing = sum(each.agrees for each in comparisons)
    count = len(comparisons)
    return (
        f"**{met} of {count} published numbers ({met / count:.0%})** lie in the 95% range of one "
        f"run of ours ({agreeing}) or are beaten by our mean ({met - agreeing} more)."
    )


def agreement_table(comparisons: Sequence[Comparison]) -> str:
    """Numbers met, of all, by table, dataset and loss."""
    tables = sorted({each.published.table for each in comparisons})
    datasets = list(dict.fromkeys(each.published.dataset for each in comparisons))
    wanted = [{"table": table, "dataset": dataset} for table in tables for dataset in datasets]
    wanted += [{"dataset": dataset} for dataset in datasets]
    lines = [header(["table", "dataset", *_LOSS_COLUMNS.values(), "all"])]
    for columns in [*wanted, {}]:
        found = _where(comparisons, columns)
        cells = [_count(_where(found, {"loss": loss})) for loss in _LOSS_COLUMNS]
        table = f"{columns['table']}: {_metrics(found)}" if "table" in columns else "all"
        dataset = _title(columns.get("dataset", "all"))
        lines.append(line([table, dataset, *cells, _count(found)]))
    return "\n".join(lines) + "\n"


def outside_table(comparisons: Sequence[Comparison], reasons: Reasons) -> str:
    """The numbers that are not met, by row of the paper's tables, with the reason if known."""
    groups: dict[tuple[str, ...], list[Comparison]] = {}
    for each in comparisons:
        if not each.met:
            number = each.published
            row = number.method + LOSS_SUFFIXES.get(number.loss, "")
            key = (f"{number.table}: {number.metric}", _title(number.dataset), row)
            groups.setdefault((*key, reasons.find(number)), []).append(each)
    names = ["table", "dataset", "row", "published → ours", "reason"]
    lines = [header(names)]
    for (table, dataset, row, reason), members in groups.items():
        numbers = "; ".join(_numbers(member) for member in members)
        lines.append(line([table, dataset, row or "ranking", numbers, reason]))
    return "\n".join(lines) + "\n"


def _numbers(each: Comparison) -> str:
    ours = "no result" if each.ours is None else f"{each.ours.mean:.4f}"
    if each.ours is not None:
        ours += f" ±{each.ours.prediction_half:.4f}"
    return f"{each.published.model} {each.published.value:.4f} → {ours}"


def _where(comparisons: Sequence[Comparison], columns: Mapping[str, str]) -> list[Comparison]:
    """Those whose published number has these values."""
    wanted = columns.items()
    return [
        each
        for each in comparisons
        if all(getattr(each.published, name) == value for name, value in wanted)
    ]


def _count(comparisons: Sequence[Comparison]) -> str:
    met = sum(each.met for each in comparisons)
    return f"{met} of {len(comparisons)}" if comparisons else ""


def _metrics(comparisons: Sequence[Comparison]) -> str:
    names = dict.fromkeys(each.published.metric.partition("@")[0] for each in comparisons)
    return ", ".join(names)


def _title(dataset: str) -> str:
    return DATASET_TITLES.get(dataset, dataset)
