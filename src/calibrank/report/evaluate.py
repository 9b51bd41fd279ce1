"""Every method on users it was not fitted on: metrics, reliability curves, histograms of predictions."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np

from calibrank._logit import logit
from calibrank._validation import Floats, add_up
from calibrank.calibrators import Gaussian, fit_without_each
from calibrank.errors import DataError, FitError, FlatMapWarning
from calibrank.evidence import Evidence
from calibrank.maps import CalibrationMap
from calibrank.metrics import (
    ECE,
    MCE,
    NDCG,
    Additive,
    Brier,
    CalibrationInTheLarge,
    Discrimination,
    EqualMass,
    EqualWidth,
    Estimate,
    LogLoss,
    Miscalibration,
    OnCells,
    Recall,
    TopN,
    about,
    bootstrap_sums,
    group_sums,
)
from calibrank.metrics.binned import Binning
from calibrank.registry import CALIBRATORS
from calibrank.report.ledger import Codes, Ledger
from calibrank.report.resampling import Clusters
from calibrank.summary import Summary

ADDITIVE: tuple[Additive, ...] = (LogLoss(), Brier(), ECE(), MCE(), CalibrationInTheLarge())
POOLED = (Miscalibration(), Discrimination())
LISTS = (NDCG(5), Recall(5))
TOP = TopN(ECE(), 5)
BINNINGS: dict[str, Binning] = {"mass": EqualMass(15), "width": EqualWidth(15)}
HISTOGRAM = 40
LOGITS = 7.0
"""Log odds beyond this fall into the histogram's outermost bins."""


class Evaluated(NamedTuple):
    """One method: what it says of each row it was not fitted on, or why it says nothing; its map of all rows."""

    name: str
    probabilities: Floats | None
    fitted: CalibrationMap | None
    error: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Evaluator:
    """Judges probabilities on one ledger; what all methods share is computed once."""

    ledger: Ledger
    clusters: Clusters
    shown: tuple[Codes, Evidence] | None
    """Each user's five best rows, by score."""

    @classmethod
    def of(cls, ledger: Ledger) -> "Evaluator":
        users = ledger.users
        shown = None if users is None else TOP.select(ledger.scores, ledger.evidence, users.codes)
        return cls(ledger, Clusters.of(ledger.groups), shown)

    def metrics(self, probabilities: Floats) -> dict[str, Estimate]:
        """Each metric by name, with its interval where one can be had."""
        ledger, size = self.ledger, self.clusters.size
        found = {
            m.name: self._estimate(m, probabilities, ledger.evidence, ledger.groups)
            for m in ADDITIVE
        }
        if self.shown is not None:
            rows, evidence = self.shown
            found[TOP.name] = self._estimate(
                ECE(), probabilities[rows], evidence, ledger.groups[rows]
            )
        pooled = Summary.of(probabilities, ledger.evidence)
        cells = group_sums(
            OnCells(POOLED[0]), probabilities, ledger.evidence, ledger.groups, size
        )  # the same for both
        for metric in POOLED:
            coarse = _resampled(OnCells(metric), cells)
            found[metric.name] = about(
                metric(np.clip(pooled.scores, 0, 1), pooled.evidence), coarse
            )
        return (
            found
            if size > 1
            else {name: Estimate(e.value, np.nan, np.nan) for name, e in found.items()}
        )

    def _estimate(
        self, metric: Additive, probabilities: Floats, evidence: Evidence, groups: Codes
    ) -> Estimate:
        return _resampled(
            metric, group_sums(metric, probabilities, evidence, groups, self.clusters.size)
        )

    def ranking(self) -> dict[str, Estimate]:
        """What the order of the scores is worth: the same for every increasing map."""
        ledger = self.ledger
        if (
            ledger.users is None
            or not ledger.evidence.positive.any()
            or len(ledger.users.names) < 2
        ):
            return {}
        heard = np.flatnonzero(ledger.evidence.total > 0)
        known, users = np.unique(ledger.users.codes[heard], return_inverse=True)
        groups = np.empty(len(known), dtype=np.intp)
        groups[users] = ledger.groups[heard]
        found = {}
        for metric in LISTS:
            each = metric.per_user(ledger.scores[heard], ledger.evidence.rows(heard), users)
            above, below = (
                add_up(groups[each.user], mass, self.clusters.size)[:, None]
                for mass in (each.value * each.weight, each.weight)
            )
            ratio = self.clusters.ratios(above, below, np.array([len(each.user)]))
            found[metric.name] = Estimate(*(float(end[0]) for end in ratio))
        return found

    def curve(self, probabilities: Floats, binning: Binning) -> dict[str, Any]:
        """A reliability curve with its band: one point a filled bin."""
        evidence = self.ledger.evidence
        cells = binning.cells(probabilities, evidence)
        size = int(cells.max()) + 1
        positive, total, predicted = (
            self.clusters.sums(cells, mass, size)
            for mass in (evidence.positive, evidence.total, evidence.total * probabilities)
        )
        rows = add_up(cells, None, size)
        observed = self.clusters.ratios(positive, total, rows)
        mass = total.sum(axis=0)
        filled = mass > 0
        columns = {
            "observed": observed.value,
            "low": observed.low,
            "high": observed.high,
            "rows": rows,
            "mass": mass,
        }
        columns["predicted"] = np.divide(
            predicted.sum(axis=0), mass, out=np.zeros(size), where=filled
        )
        return {name: values[filled] for name, values in columns.items()}

    def describe(self, judged: Evaluated) -> dict[str, Any]:
        """All the page needs to know of one method."""
        about: dict[str, Any] = {"name": judged.name, "error": judged.error}
        if judged.probabilities is None:
            return about
        probabilities = judged.probabilities
        about["metrics"] = {
            name: [*estimate] for name, estimate in self.metrics(probabilities).items()
        }
        about["curves"] = {
            name: self.curve(probabilities, binning) for name, binning in BINNINGS.items()
        }
        about["histogram"] = histograms(probabilities)
        return about


def _resampled(metric: Additive, sums: Floats) -> Estimate:
    return bootstrap_sums(metric, sums[sums.any(axis=(1, 2))], resamples=300)


def every_method(ledger: Ledger, given: CalibrationMap | None) -> Iterator[Evaluated]:
    """The map to be judged first (a given one as it is, or Gaussian), then all methods, cross-validated."""
    parts = ledger.parts()
    together = reduce(add, parts)
    if given is not None:
        yield Evaluated(f"{given.method} (this map)", given.predict(ledger.scores), given)
    first = [] if given is not None else [Gaussian()]
    for method in (*first, *(m for m in CALIBRATORS.values() if m not in first)):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FlatMapWarning)  # a flat map shows in its curve
                maps, whole = fit_without_each(method, parts), method.fit_summary(together)
        except (FitError, DataError) as error:
            yield Evaluated(method.name, None, None, str(error))
        else:
            yield Evaluated(method.name, ledger.held_out(maps), whole)


def histograms(probabilities: Floats) -> dict[str, Any]:
    """Rows by predicted probability, in equal steps of probability and of log odds."""
    log_odds = np.clip(logit(probabilities), -LOGITS, LOGITS)
    return {
        "linear": np.histogram(probabilities, HISTOGRAM, (0, 1))[0],
        "logit": np.histogram(log_odds, HISTOGRAM, (-LOGITS, LOGITS))[0],
    }
