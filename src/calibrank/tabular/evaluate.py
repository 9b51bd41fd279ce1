"""Judging the probabilities of a table on disk, in one pass."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from calibrank._validation import Floats
from calibrank.evidence import Evidence, naive
from calibrank.maps import CalibrationMap
from calibrank.metrics import (
    ECE,
    MCE,
    NDCG,
    Additive,
    Brier,
    CalibrationInTheLarge,
    Discrimination,
    Estimate,
    GroupSums,
    LogLoss,
    Metric,
    Miscalibration,
    OnCells,
    Recall,
    ReliabilityCurve,
    TopN,
    about,
    bootstrap,
    bootstrap_sums,
    reliability,
)
from calibrank.summary import SummaryBuilder
from calibrank.tabular.aggregate import Columns, Rows, buckets_of, rows_of
from calibrank.tabular.read import Progress, Table, indices_of
from calibrank.tabular.rules import Rules

GROUPS = 2048
"""Users fall into this many groups, which are what is resampled: memory does not grow with users."""

MOST_ROWS_IN_MEMORY = 20_000_000
"""Metrics over each user's list need all rows at once; beyond this many they are left out, and that is said."""

ADDITIVE: tuple[Additive, ...] = (LogLoss(), Brier(), ECE(), MCE(), CalibrationInTheLarge())
POOLED = (Miscalibration(), Discrimination())
ON_CELLS = OnCells(POOLED[0])  # the sums of both are the same
LISTS: tuple[Metric, ...] = (TopN(ECE(), 5), NDCG(5), Recall(5))


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A table's metrics, with intervals where they can be had, and its reliability curve."""

    rows: int
    estimates: dict[str, Estimate]
    better: dict[str, str]
    curve: ReliabilityCurve
    left_out: tuple[str, ...]


def evaluate(
    table: Table,
    columns: Columns,
    fitted: CalibrationMap | None,
    rules: Rules,
    progress: Progress | None = None,
) -> Evaluation:
    """Evaluate a score column through a map, or a probability column as it is (then `columns.score` names it)."""
    state = _State()
    for rows in rows_of(table, columns, rules, progress):
        state.add(rows, rows.scores if fitted is None else fitted.predict(rows.scores))
    return state.verdict()


@dataclass(slots=True)
class _State:
    """Sums by group of users, a summary of the probabilities, and the rows themselves while they are few."""

    rows: int = 0
    builder: SummaryBuilder = field(default_factory=SummaryBuilder)
    sums: dict[str, GroupSums] = field(
        default_factory=lambda: {
            metric.name: GroupSums(metric, GROUPS) for metric in (*ADDITIVE, ON_CELLS)
        }
    )
    kept: list[tuple[Floats, Floats, Floats, npt.NDArray[np.intp]]] = field(default_factory=list)
    users: dict[object, int] = field(default_factory=dict)

    def add(self, rows: Rows, probabilities: Floats) -> None:
        evidence = naive(rows.labels, weights=rows.weights)
        groups = buckets_of(rows, self.rows, GROUPS)
        for sums in self.sums.values():
            sums.add(probabilities, evidence, groups)
        self.builder.update(probabilities, evidence)
        self.rows += len(probabilities)
        if rows.users is None or self.rows > MOST_ROWS_IN_MEMORY:
            self.kept.clear()
            return
        encoded = rows.users.dictionary_encode()
        codes = [
            self.users.setdefault(user, len(self.users)) for user in encoded.dictionary.to_pylist()
        ]
        numbers = np.array(codes, dtype=np.intp)[indices_of(encoded)]
        self.kept.append((probabilities, evidence.positive, evidence.total, numbers))

    def verdict(self) -> Evaluation:
        summary = self.builder.summary()
        pooled = summary.evidence
        estimates = {
            metric.name: bootstrap_sums(metric, self._groups(metric)) for metric in ADDITIVE
        }
        for metric in POOLED:
            coarse = bootstrap_sums(OnCells(metric), self._groups(ON_CELLS))
            estimates[metric.name] = about(metric(summary.scores, pooled), coarse)
        lists = self._lists() if summary.positive.any() else {}
        estimates.update(lists)
        left_out = tuple(metric.name for metric in LISTS if metric.name not in lists)
        better = {metric.name: metric.better.value for metric in (*ADDITIVE, *POOLED, *LISTS)}
        return Evaluation(
            self.rows, estimates, better, reliability(summary.scores, pooled), left_out
        )

    def _lists(self) -> dict[str, Estimate]:
        if not self.kept:
            return {}
        probabilities, positive, total, users = (
            np.concatenate(column) for column in zip(*self.kept, strict=True)
        )
        evidence = Evidence.trusted(positive, total, "naive")
        return {metric.name: bootstrap(metric, probabilities, evidence, users) for metric in LISTS}

    def _groups(self, metric: Additive) -> Floats:
        sums = self.sums[metric.name].result()
        return sums[sums.any(axis=(1, 2))]
