"""The results of one dataset under one spec and split, by what was fitted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from calibrank.experiment.published import Fit
from calibrank.experiment.spec import Spec
from calibrank.experiment.statistics import Results, Spread, paired_p

_COLUMNS = ("model", "method", "loss", "propensity", "negatives", "metric", "seed", "value")
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

    @classmethod
    def of(cls, results: Results, spec: Spec, dataset: str, split: str) -> Protocol:
        """Select the rows of a dataset, spec and split."""
        table = results.where(dataset=dataset, spec=spec.name, split=split).table
        cells: dict[_Key, BySeed] = {}
        columns = [table[name].to_pylist() for name in _COLUMNS]
        for *key, seed, value in zip(*columns, strict=True):
            cells.setdefault(_Key(*key), {})[seed] = value
        return cls(spec, dataset, split, cells)

    @property
    def models(self) -> list[str]:
        """The models that have results, in the order of the spec."""
        present = {key.model for key in self.cells}
        return [model for model in self.spec.models if model in present]

    @property
    def seeds(self) -> int:
        """The number of seeds."""
        return len({seed for by_seed in self.cells.values() for seed in by_seed})

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
        counts = set()
        for key in self.cells:
            if (key.loss, key.propensity) == (loss, propensity):
                counts.add(key.negatives)
        return sorted(counts)
