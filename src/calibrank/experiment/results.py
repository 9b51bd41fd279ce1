"""Result rows: their files, means over seeds with intervals, paired tests, and the rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from scipy import stats

from calibrank._internal.arguments import regular_file
from calibrank._internal.validation import Floats
from calibrank.errors import DataError
from calibrank.experiment.spec import Spec

_KEYS = ("dataset", "spec", "split", "model", "method", "loss", "propensity")
SCHEMA = pa.schema(
    [(name, pa.string()) for name in _KEYS]
    + [("negatives", pa.int64()), ("seed", pa.int64())]
    + [("metric", pa.string()), ("value", pa.float64())]
    + [("note", pa.string()), ("provenance", pa.string())]
)
SWEPT_METHODS = ("Platt", "Gaussian", "Gamma")
"""The methods for which other numbers of negatives and other propensities are tried."""


def read_rows(file: Path) -> pa.Table:
    """The rows of a file that `calibrank reproduce` wrote; any other file is an error."""
    regular_file(file, "a file of result rows", "Name the rows.parquet of a run.")
    try:
        table = pq.read_table(file).select(SCHEMA.names).cast(SCHEMA)
    # A `KeyError` is about a missing column.
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise DataError(file, "be a Parquet file of result rows", error) from None
    # Older versions had another name for this metric.
    metrics = pc.replace_substring(table["metric"], "ECE of top 5", "ECE@5")
    return table.set_column(table.column_names.index("metric"), "metric", metrics)


@dataclass(frozen=True, slots=True)
class Spread:
    """The mean of a number over seeds, with two 95% intervals (Student's t)."""

    mean: float
    half: float
    """Half the width of the confidence interval of the mean."""
    prediction_half: float
    """Half the width of the prediction interval of one more run.

    A published number, which is one run, is compared with this interval.
    """
    seeds: int

    @classmethod
    def of(cls, values: Floats) -> Spread:
        """The spread of one value per seed; intervals are NaN for a single seed."""
        count = len(values)
        mean = float(values.mean())
        if count < 2:
            return cls(mean, float("nan"), float("nan"), count)
        width = float(stats.t.ppf(0.975, count - 1)) * float(values.std(ddof=1))
        # The mean has variance s^2 / n; one more run differs from it with s^2 (1 + 1 / n).
        return cls(mean, width / count**0.5, width * (1 + 1 / count) ** 0.5, count)


class Fit(NamedTuple):
    """A method with a loss; without both, the ranking itself."""

    method: str
    loss: str
    propensity: str = "popularity"
    negatives: int | None = None
    """By default the spec's number for the loss."""


RANKING = Fit("", "", "", 0)
"""The accuracy of a model does not depend on the calibration."""


@dataclass(frozen=True, slots=True)
class NearestNegatives:
    """What the rule gives for one loss: the number, and the mean prediction over the base rate."""

    count: int
    ratio: float
    tried: list[int]


@dataclass(frozen=True, slots=True, eq=False)
class Protocol:
    """The results of one dataset under one spec and split: each seed's value of what was fitted."""

    spec: Spec
    dataset: str
    split: str
    cells: dict[tuple[str, str, Fit], dict[int, float]]
    """Values by seed, by model, metric and fit."""
    models: list[str]
    """Those that have results, in the order of the spec."""
    seeds: int

    @classmethod
    def of(cls, rows: pa.Table, spec: Spec, dataset: str, split: str) -> Protocol:
        """Select the rows of a dataset, spec and split."""
        wanted = {"dataset": dataset, "spec": spec.name, "split": split}
        for name, value in wanted.items():
            rows = rows.filter(pc.equal(rows[name], value))
        # Grouped by Arrow: turning every row into Python objects would take seconds.
        keys = ["model", "metric", *Fit._fields]
        grouped = rows.group_by(keys, use_threads=False)
        groups = grouped.aggregate([("seed", "list"), ("value", "list")])
        columns = [groups[name].to_pylist() for name in (*keys, "seed_list", "value_list")]
        cells = {}
        for model, metric, *fit, seeds, values in zip(*columns, strict=True):
            cells[model, metric, Fit(*fit)] = dict(zip(seeds, values, strict=True))
        present = {model for model, _, _ in cells}
        models = [model for model in spec.models if model in present]
        return cls(spec, dataset, split, cells, models, len(rows["seed"].unique()))

    def by_seed(self, metric: str, fit: Fit, model: str) -> dict[int, float]:
        """The value of each seed."""
        if fit.negatives is None:
            fit = fit._replace(negatives=self.spec.negatives_for(self.dataset, fit.loss))
        return self.cells.get((model, metric, fit), {})

    def spread(self, metric: str, fit: Fit, model: str) -> Spread | None:
        """The mean over seeds with its intervals; None without results."""
        values = self.by_seed(metric, fit, model)
        return Spread.of(np.array(list(values.values()))) if values else None

    def paired_p(self, metric: str, ours: Fit, theirs: Fit, model: str) -> float:
        """The p-value of a paired t-test over the seeds that both have; NaN if not defined."""
        first = self.by_seed(metric, ours, model)
        second = self.by_seed(metric, theirs, model)
        # A failed fit leaves a seed without a value.
        seeds = sorted(first.keys() & second.keys())
        differences = np.array([first[seed] - second[seed] for seed in seeds])
        if len(seeds) < 2 or np.allclose(differences, differences[0]):
            return float("nan")
        return float(stats.ttest_1samp(differences, 0).pvalue)

    def tried_negatives(self, loss: str, propensity: str = "popularity") -> list[int]:
        """The numbers of negatives for which there are results."""
        wanted = (loss, propensity)
        fits = {fit for _, _, fit in self.cells if (fit.loss, fit.propensity) == wanted}
        return sorted({fit.negatives for fit in fits if fit.negatives is not None})

    def nearest_negatives(
        self, loss: str, propensity: str = "popularity"
    ) -> NearestNegatives | None:
        """The number whose mean prediction is nearest to the base rate; None without rows.

        A biased log does not identify the base rate, and the number of negatives per positive sets
        it. The published rows of both losses lie near the test set's base rate, so each loss must
        have had a number of its own. The rule finds it, from the test set.
        """
        means = {}
        base_rates: list[float] = []
        for count in self.tried_negatives(loss, propensity):
            fits = [Fit(method, loss, propensity, count) for method in SWEPT_METHODS]
            predictions = self._means_by_model("mean prediction", fits)
            if not predictions:
                continue
            base_rates += self._means_by_model("base rate", fits)
            # 0 means as many as represent all unobserved pairs: it is no number to choose.
            if count:
                # Not the mean: one model with other scores (CML) would decide for all.
                means[count] = float(np.median(predictions))
        if not means:
            return None
        base_rate = float(np.mean(base_rates))
        chosen = min(means, key=lambda count: abs(means[count] - base_rate))
        return NearestNegatives(chosen, means[chosen] / base_rate, list(means))

    def _means_by_model(self, metric: str, fits: Sequence[Fit]) -> list[float]:
        """The mean of all fits and seeds for each model; empty if one of them is missing."""
        means = []
        for model in self.models:
            values: list[float] = []
            for fit in fits:
                by_seed = self.by_seed(metric, fit, model)
                if len(by_seed) < self.seeds:
                    return []
                values += by_seed.values()
            means.append(float(np.mean(values)))
        return means
