"""The results of one dataset under one spec and split, by what was fitted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from calibrank.experiment.spec import Spec
from calibrank.experiment.statistics import Results, Spread, paired_p

BySeed = dict[int, float]


class Fit(NamedTuple):
    """A method with a loss; without both, the ranking itself."""

    method: str
    loss: str
    propensity: str = "popularity"
    negatives: int | None = None
    """By default the spec's number for the loss."""


RANKING = Fit("", "", "", 0)
"""The accuracy of a model does not depend on the calibration."""


@dataclass(frozen=True, slots=True, eq=False)
class Protocol:
    """The value of every seed, by model, metric and fit."""

    spec: Spec
    dataset: str
    split: str
    cells: dict[tuple[str, str, Fit], BySeed]
    models: list[str]
    """Those that have results, in the order of the spec."""
    seeds: int

    @classmethod
    def of(cls, results: Results, spec: Spec, dataset: str, split: str) -> Protocol:
        """Select the rows of a dataset, spec and split."""
        table = results.where(dataset=dataset, spec=spec.name, split=split).table
        # Grouped by Arrow: turning every row into Python objects would take seconds.
        keys = ["model", "metric", *Fit._fields]
        grouped = table.group_by(keys, use_threads=False)
        groups = grouped.aggregate([("seed", "list"), ("value", "list")])
        columns = [groups[name].to_pylist() for name in (*keys, "seed_list", "value_list")]
        cells = {}
        for model, metric, *fit, seeds, values in zip(*columns, strict=True):
            cells[model, metric, Fit(*fit)] = dict(zip(seeds, values, strict=True))
        present = {model for model, _, _ in cells}
        models = [model for model in spec.models if model in present]
        return cls(spec, dataset, split, cells, models, len(table["seed"].unique()))

    def by_seed(self, metric: str, fit: Fit, model: str) -> BySeed:
        """The value of each seed."""
        if fit.negatives is None:
            fit = fit._replace(negatives=self.spec.negatives_for(self.dataset, fit.loss))
        return self.cells.get((model, metric, fit), {})

    def spread(self, metric: str, fit: Fit, model: str) -> Spread | None:
        """The mean over seeds with its intervals; None without results."""
        values = self.by_seed(metric, fit, model)
        return Spread.of(np.array(list(values.values()))) if values else None

    def paired_p(self, metric: str, ours: Fit, theirs: Fit, model: str) -> float:
        """The p-value of a paired test over the seeds that both have."""
        first = self.by_seed(metric, ours, model)
        second = self.by_seed(metric, theirs, model)
        # A failed fit leaves a seed without a value.
        seeds = sorted(first.keys() & second.keys())
        our_values = np.array([first[seed] for seed in seeds])
        their_values = np.array([second[seed] for seed in seeds])
        return paired_p(our_values, their_values)

    def tried_negatives(self, loss: str, propensity: str = "popularity") -> list[int]:
        """The numbers of negatives for which there are results."""
        wanted = (loss, propensity)
        fits = {fit for _, _, fit in self.cells if (fit.loss, fit.propensity) == wanted}
        return sorted({fit.negatives for fit in fits if fit.negatives is not None})
