"""The results of one dataset under one spec and split, by what was fitted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from calibrank.experiment.published import Fit
from calibrank.experiment.spec import Spec
from calibrank.experiment.statistics import Results, Spread, paired_p

BySeed = dict[int, float]


class _Key(NamedTuple):
    model: str
    method: str
    loss: str
    propensity: str
    negatives: int
    metric: str


@dataclass(frozen=True, slots=True, eq=False)
class Protocol:
    """The values of every seed, found by model, method, loss, propensity, negatives and metric."""

    spec: Spec
    dataset: str
    split: str
    cells: dict[_Key, BySeed]
    models: list[str]
    """Those that have results, in the order of the spec."""
    seeds: int
    tried: dict[tuple[str, str], list[int]]
    """The numbers of negatives with results, by loss and propensity."""

    @classmethod
    def of(cls, results: Results, spec: Spec, dataset: str, split: str) -> Protocol:
        """Select the rows of a dataset, spec and split."""
        table = results.where(dataset=dataset, spec=spec.name, split=split).table
        # Grouped by Arrow: turning every row into Python objects would take seconds.
        grouped = table.group_by(list(_Key._fields), use_threads=False)
        groups = grouped.aggregate([("seed", "list"), ("value", "list")])
        columns = [groups[name].to_pylist() for name in (*_Key._fields, "seed_list", "value_list")]
        cells: dict[_Key, BySeed] = {}
        for *key, seeds, values in zip(*columns, strict=True):
            cells[_Key(*key)] = dict(zip(seeds, values, strict=True))
        tried: dict[tuple[str, str], set[int]] = {}
        for each in cells:
            tried.setdefault((each.loss, each.propensity), set()).add(each.negatives)
        ordered = {key: sorted(numbers) for key, numbers in tried.items()}
        present = {each.model for each in cells}
        models = [model for model in spec.models if model in present]
        return cls(spec, dataset, split, cells, models, len(table["seed"].unique()), ordered)

    def by_seed(
        self,
        metric: str,
        fit: Fit,
        model: str,
        *,
        negatives: int | None = None,
        propensity: str = "popularity",
    ) -> BySeed:
        """The value of each seed, by default with the spec's number of negatives for the loss."""
        if negatives is None:
            negatives = self.spec.negatives_for(self.dataset, fit.loss)
        key = _Key(model, fit.method, fit.loss, propensity, negatives, metric)
        return self.cells.get(key, {})

    def spread(
        self,
        metric: str,
        fit: Fit,
        model: str,
        *,
        negatives: int | None = None,
        propensity: str = "popularity",
    ) -> Spread | None:
        """The mean over seeds with its intervals; None without results."""
        values = self.by_seed(metric, fit, model, negatives=negatives, propensity=propensity)
        return Spread.of(np.array(list(values.values()))) if values else None

    def ranking(self, metric: str, model: str) -> Spread | None:
        """The accuracy of a model, which does not depend on the calibration."""
        values = self.cells.get(_Key(model, "", "", "", 0, metric))
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
        return self.tried.get((loss, propensity), [])
