"""The rule for the number of negatives, and what it gives.

A biased log does not identify the base rate, and the number of negatives per positive sets it. The
published rows of both losses lie near the test set's base rate, so each loss must have had a number
of its own. The rule finds it, from the test set.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibrank.experiment.cell import SWEPT_METHODS
from calibrank.experiment.markdown import header, line
from calibrank.experiment.protocol import Protocol
from calibrank.experiment.published import LOSS_SUFFIXES, Fit

RULE = (
    "Of the numbers tried, the one at which the mean prediction over the test set "
    f"({', '.join(SWEPT_METHODS)}; mean over all models and seeds) is nearest to the test set's "
    "base rate. Numbers at which a fit failed are left out."
)


@dataclass(frozen=True, slots=True)
class NearestNegatives:
    """What the rule gives for one loss."""

    count: int
    mean_predictions: dict[int, float]
    """The mean prediction at each number that was tried."""
    base_rate: float

    @property
    def ratio(self) -> float:
        """The mean prediction at the chosen number over the base rate."""
        return self.mean_predictions[self.count] / self.base_rate


def nearest_negatives(
    protocol: Protocol, loss: str, propensity: str = "popularity"
) -> NearestNegatives | None:
    """Apply the rule to the rows of a protocol; None if there are none."""
    means = {}
    base_rates: list[float] = []
    for count in protocol.tried_negatives(loss, propensity):
        predictions = _all_values(protocol, "mean prediction", loss, propensity, count)
        if predictions:
            means[count] = float(np.mean(predictions))
            base_rates += _all_values(protocol, "base rate", loss, propensity, count)
    # 0 means as many as represent all unobserved pairs: it is no number to choose.
    means.pop(0, None)
    if not means:
        return None
    base_rate = float(np.mean(base_rates))
    chosen = min(means, key=lambda count: abs(means[count] - base_rate))
    return NearestNegatives(chosen, means, base_rate)


def rule_table(protocol: Protocol) -> str:
    """The numbers of negatives that the rule gives for each loss, beside those of the spec."""
    names = ["loss", "by the rule", "in the spec", "mean prediction / base rate", "numbers tried"]
    lines = ["### Negatives per held-out positive\n", f"{RULE}\n", header(names)]
    for loss in protocol.spec.losses:
        found = nearest_negatives(protocol, loss)
        if found is None:
            continue
        tried = ", ".join(map(str, found.mean_predictions))
        in_spec = str(protocol.spec.negatives_for(protocol.dataset, loss))
        name = LOSS_SUFFIXES[loss].removeprefix(", ")
        lines.append(line([name, str(found.count), in_spec, f"{found.ratio:.2f}", tried]))
    return "\n".join(lines) + "\n"


def _all_values(
    protocol: Protocol, metric: str, loss: str, propensity: str, count: int
) -> list[float]:
    """The values of every swept method, model and seed; empty if one of them is missing."""
    values: list[float] = []
    models = protocol.models
    for method in SWEPT_METHODS:
        for model in models:
            by_seed = protocol.by_seed(
                metric, Fit(method, loss), model, negatives=count, propensity=propensity
            )
            if len(by_seed) < protocol.seeds:
                return []
            values += by_seed.values()
    return values
