"""Markdown tables of a reproduction: our numbers with intervals beside the published ones."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from calibrank.experiment.runner import Grid
from calibrank.experiment.spec import Spec
from calibrank.experiment.statistics import Results, Spread, paired_p

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
FURTHER_ROWS = (
    ("not in the paper", "GammaGaussian", "naive"),
    ("not in the paper", "GammaGaussian", "ips"),
    ("not in the paper", "Temperature", "ips"),
    ("not in the paper", "Isotonic", "ips"),
)
PROPOSED = ("Gaussian", "Gamma")
"""The methods that the paper proposes, with UERM (unbiased empirical risk minimization)."""
LOSS_SUFFIXES = {"none": "", "naive": ", naive", "ips": ", UERM"}

# The paper's names where they differ from ours.
_PAPER_METHODS = {"Histogram": "Hist"}
_PAPER_LOSSES = {"ips": "uerm"}


class Fit(NamedTuple):
    """A method with a loss."""

    method: str
    loss: str


@dataclass(frozen=True, slots=True)
class Published:
    """The paper's numbers by metric, method, loss, dataset and model."""

    values: dict[tuple[str, ...], float]

    @classmethod
    def load(cls, path: Path) -> Published:
        """Read a CSV file with one row per number."""
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        keys = ("metric", "method", "loss", "dataset", "model")
        return cls({tuple(row[key] for key in keys): float(row["value"]) for row in rows})

    def find(
        self,
        metric: str,
        method: str,
        loss: str,
        dataset: str,
        model: str,
    ) -> float | None:
        """A published number, or None if the paper does not report it."""
        paper_method = _PAPER_METHODS.get(method, method)
        paper_loss = _PAPER_LOSSES.get(loss, loss)
        return self.values.get((metric, paper_method, paper_loss, dataset, model))


@dataclass(frozen=True, slots=True, eq=False)
class TableWriter:
    """Writes the tables of one dataset under one spec and split."""

    results: Results
    published: Published
    spec: Spec
    dataset: str
    split: str

    def all(self) -> Iterator[str]:
        """Every table that has a counterpart in the paper."""
        yield f"## {self.spec.title}\n\n{self.spec.why.strip()}\n"
        count = self.spec.negatives_for(self.dataset) or "as many as represent all unobserved pairs"
        yield f"Negatives per held-out positive: {count}. {self.spec.why_negatives.strip()}\n"
        yield self.calibration("Table 1: expected calibration error", "ECE", "ECE")
        yield self.calibration("Table 4: maximum calibration error", "ReleasedMCE", "MCE")
        yield self.calibration("Table 5: negative log-likelihood", "LogLoss", "NLL")
        yield self.ranking()

    def calibration(self, title: str, metric: str, paper_metric: str) -> str:
        """A table like the paper's Table 1."""
        models = self._models()
        lines = [f"### {title}\n", _header(["", "method", *models])]
        # Only methods of the paper compete for the bold number.
        best = {model: _lowest(self._published_fits(metric, model)) for model in models}
        for row in (*PUBLISHED_ROWS, *FURTHER_ROWS):
            group, method, loss = row
            cells = []
            for model in models:
                spread = self._spread(metric, Fit(method, loss), model)
                published = self.published.find(paper_metric, method, loss, self.dataset, model)
                cells.append(_cell(spread, published, bold=best[model] == (method, loss)))
            name = method + LOSS_SUFFIXES[loss] if row in FURTHER_ROWS else method
            lines.append(_line([group, name, *cells]))
        improvements = [self._improvement(metric, model) for model in models]
        lines.append(_line(["", "improvement", *improvements]))
        tests = [self._paired_test(metric, model) for model in models]
        lines.append(_line(["", "paired test", *tests]))
        return "\n".join(lines) + "\n"

    def ranking(self) -> str:
        """A table like the paper's Table 3."""
        models = self._models()
        lines = ["### Table 3: ranking accuracy\n", _header(["metric", *models])]
        for metric in ("NDCG@1", "NDCG@3", "NDCG@5", "Recall@1", "Recall@3", "Recall@5"):
            cells = []
            for model in models:
                spread = self.results.spread(
                    spec=self.spec.name, split=self.split, model=model, metric=metric, method=""
                )
                published = self.published.find(metric, "", "", self.dataset, model)
                cells.append(_cell(spread, published))
            lines.append(_line([metric, *cells]))
        return "\n".join(lines) + "\n"

    def agreement(self) -> str:
        """In which cells the published ECE of the proposed methods lies in our interval or above.

        Empty where nothing was published.
        """
        lines = [_header(["", *self._models()])]
        verdicts = []
        for method in PROPOSED:
            of_method = [self._verdict(method, model) for model in self._models()]
            verdicts += [verdict for verdict in of_method if verdict]
            lines.append(_line([method, *of_method]))
        if not verdicts:
            return ""
        met = sum(not verdict.startswith("**not met**") for verdict in verdicts)
        heading = (
            "### Published ECE against ours, Gaussian and Gamma with UERM: "
            f"{met} of {len(verdicts)} agree or improve\n"
        )
        return "\n".join([heading, *lines]) + "\n"

    def _models(self) -> list[str]:
        present = self.results.distinct("model")
        return [model for model in self.spec.models if model in present]

    def _spread(self, metric: str, fit: Fit, model: str) -> Spread | None:
        return self.results.spread(**self._key(metric, fit, model))

    def _key(self, metric: str, fit: Fit, model: str) -> dict[str, object]:
        return {
            "spec": self.spec.name,
            "split": self.split,
            "model": model,
            "method": fit.method,
            "loss": fit.loss,
            "propensity": "popularity",
            "metric": metric,
            "negatives": self.spec.negatives_for(self.dataset),
        }

    def _published_fits(self, metric: str, model: str) -> dict[Fit, Spread]:
        """Our results for the rows of the paper's table."""
        spreads = {}
        for _, method, loss in PUBLISHED_ROWS:
            spread = self._spread(metric, Fit(method, loss), model)
            if spread is not None:
                spreads[Fit(method, loss)] = spread
        return spreads

    def _compared(
        self,
        metric: str,
        model: str,
    ) -> tuple[Fit | None, Fit | None]:
        """The best proposed method with UERM, and the best method of others."""
        spreads = self._published_fits(metric, model)
        proposed = {}
        others = {}
        for fit, spread in spreads.items():
            # The proposed methods with the naive loss are in neither group.
            if fit.method not in PROPOSED:
                others[fit] = spread
            elif fit.loss == "ips":
                proposed[fit] = spread
        return _lowest(proposed), _lowest(others)

    def _improvement(self, metric: str, model: str) -> str:
        """How much lower the best proposed method is than the best of the others."""
        ours, theirs = self._compared(metric, model)
        if ours is None or theirs is None:
            return ""
        our_mean = self.results.values(**self._key(metric, ours, model)).mean()
        their_mean = self.results.values(**self._key(metric, theirs, model)).mean()
        return f"{1 - our_mean / their_mean:+.1%}" if their_mean else ""

    def _paired_test(self, metric: str, model: str) -> str:
        ours, theirs = self._compared(metric, model)
        if ours is None or theirs is None:
            return ""
        our_values = self.results.values(**self._key(metric, ours, model))
        their_values = self.results.values(**self._key(metric, theirs, model))
        # A failed fit leaves a seed without a value, and then there are no pairs to compare.
        p = float("nan")
        if len(our_values) == len(their_values):
            p = paired_p(our_values, their_values)
        baseline = theirs.method + LOSS_SUFFIXES[theirs.loss]
        result = "-" if _is_nan(p) else f"p = {p:.2g}"
        return f"{ours.method} against {baseline}: {result}"

    def _verdict(self, method: str, model: str) -> str:
        """How the published ECE of a proposed method compares with ours; "" if one is missing."""
        spread = self._spread("ECE", Fit(method, "ips"), model)
        published = self.published.find("ECE", method, "ips", self.dataset, model)
        if spread is None or published is None:
            return ""
        if spread.mean <= published:
            return "ours is better"
        if abs(spread.mean - published) <= spread.half:
            return "within our interval"
        if spread.covers(published):
            return "**not met**, within one run's range"
        return "**not met**"


def write_tables(grid: Grid, results: Results, published: Published) -> str:
    """Every table of a run, spec by spec."""
    legend = (
        "Mean over seeds ± half its 95% interval (published number, difference); "
        "best of a column in bold.\n"
    )
    parts = [f"# {grid.dataset}, {grid.seeds} seeds\n", legend]
    for spec in grid.specs:
        of_spec = results.where(spec=spec.name)
        writer = TableWriter(of_spec, published, spec, grid.dataset, spec.splits[0])
        parts += [*writer.all(), split_and_loss_table(of_spec, spec, grid.dataset)]
        # The paper's numbers are for the released split only.
        if writer.split == "released":
            parts.append(writer.agreement())
    return "\n".join(part for part in parts if part)


def split_and_loss_table(results: Results, spec: Spec, dataset: str) -> str:
    """A table that the paper does not have: the Gaussian method by split and loss."""
    title = (
        "### Gaussian by split and loss: ECE; mean prediction over the true base rate; "
        "ECE of each user's top 5\n"
    )
    lines = [title, _header(["split", "loss", *spec.models])]
    for split in spec.splits:
        for loss in spec.losses:
            cells = []
            for model in spec.models:
                key = {
                    "spec": spec.name,
                    "split": split,
                    "model": model,
                    "method": "Gaussian",
                    "loss": loss,
                    "propensity": "popularity",
                    "negatives": spec.negatives_for(dataset),
                }
                cells.append(_three_metrics(results, key))
            lines.append(_line([split, loss, *cells]))
    return "\n".join(lines) + "\n"


def _three_metrics(results: Results, key: dict[str, object]) -> str:
    ece = results.spread(**key, metric="ECE")
    in_the_large = results.spread(**key, metric="CalibrationInTheLarge")
    top = results.spread(**key, metric="ECE of top 5")
    if ece is None or in_the_large is None or top is None:
        return ""
    return f"{ece.mean:.4f}; {in_the_large.mean:.2f}; {top.mean:.4f}"


def _lowest(spreads: dict[Fit, Spread]) -> Fit | None:
    """The fit with the lowest mean."""
    if not spreads:
        return None
    return min(spreads, key=lambda fit: spreads[fit].mean)


def _cell(
    spread: Spread | None,
    published: float | None,
    *,
    bold: bool = False,
) -> str:
    if spread is None:
        return ""
    mean = f"**{spread.mean:.4f}**" if bold else f"{spread.mean:.4f}"
    interval = "" if _is_nan(spread.half) else f" ±{spread.half:.4f}"
    if published is None:
        return mean + interval
    return f"{mean}{interval} ({published:.4f}, {spread.mean - published:+.4f})"


def _is_nan(value: float) -> bool:
    return math.isnan(value)


def _header(names: Sequence[str]) -> str:
    return _line(names) + "\n" + "|---" * len(names) + "|"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
