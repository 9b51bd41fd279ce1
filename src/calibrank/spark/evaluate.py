"""Evaluate a probability column of a Spark frame by native aggregation.

Spark sums the terms of each additive metric per bin; the metric itself turns the sums into its
value, so results equal those on one machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from calibrank._internal.validation import add_up
from calibrank.errors import DataError
from calibrank.metrics import (
    ECE,
    MCE,
    Additive,
    Brier,
    CalibrationInTheLarge,
    ConstantLogLoss,
    DebiasedECE,
    LogLoss,
    LogLossGain,
    Metric,
    ReleasedECE,
    ReleasedMCE,
)
from calibrank.metrics.panel import ADDITIVE
from calibrank.spark.aggregate import summarize
from calibrank.spark.collect import fetch
from calibrank.spark.rows import Rows


class _Row(NamedTuple):
    """The columns that a metric's terms are computed from."""

    probability: Column
    positive: Column
    total: Column

    @property
    def masses(self) -> tuple[Column, ...]:
        return self.positive, self.total, self.total * self.probability


Terms = Callable[[Any, _Row], tuple[Column, ...]]


def evaluate(
    frame: DataFrame,
    metrics: Sequence[Metric] = ADDITIVE,
    *,
    probability: str = "probability",
    label: str = "label",
    propensity: str | None = None,
    weight: str | None = None,
) -> dict[str, float]:
    """Compute each metric on a frame, by name, with the same result as on one machine.

    Proper scores and errors over bins of equal width are summed row by row. Other metrics that
    need no users (Miscalibration, Discrimination, EqualMassECE) are computed from a summary of the
    probabilities, as `calibrank evaluate` does.

    >>> from calibrank import Brier
    >>> from pyspark.sql import SparkSession
    >>> spark = SparkSession.builder.getOrCreate()
    >>> frame = spark.createDataFrame([(0.5, 0), (0.5, 1)], ["probability", "label"])
    >>> evaluate(frame, [Brier()])
    {'Brier': 0.25}
    """
    # Results are returned by name, so names must differ.
    names = _distinct_names(metrics)
    rows = Rows.of(
        frame, probability=probability, label=label, propensity=propensity, weight=weight
    )
    summed = [
        metric for metric in metrics if isinstance(metric, Additive) and type(metric) in _TERMS
    ]
    values = _evaluate_sums(rows, summed)
    if len(values) < len(names):
        summary = summarize(
            frame, score=probability, label=label, propensity=propensity, weight=weight
        )
        for metric in metrics:
            if metric.name not in values:
                values[metric.name] = metric(summary.scores, summary.evidence)
    return {name: values[name] for name in names}


def _distinct_names(metrics: Sequence[Metric]) -> list[str]:
    """Return the names of metrics that can be computed here, or raise an error."""
    names = [metric.name for metric in metrics]
    if len(set(names)) < len(names):
        raise DataError(
            "metrics", "have distinct names", ", ".join(names), "Ask for one at a time."
        )
    for metric in metrics:
        if metric.needs_users:
            raise DataError(
                "metrics",
                "need no users on Spark",
                metric.name,
                "Evaluate a sample of users instead.",
            )
    return names


def _evaluate_sums(rows: Rows, metrics: Sequence[Additive]) -> dict[str, float]:
    """Compute the metrics whose terms Spark can sum, in one pass over the rows."""
    row = _Row(F.col("probability"), rows.positive, rows.total)
    terms = {metric.name: _TERMS[type(metric)](metric, row) for metric in metrics}
    found = _aggregate(rows, metrics, terms)
    values = {}
    for metric in metrics:
        bins = found[f"bin_{metric.n_bins}"].astype(np.intp)
        sums = [
            add_up(bins, found[f"{metric.name}_{number}"], metric.n_bins)
            for number in range(len(terms[metric.name]))
        ]
        values[metric.name] = metric.compute(np.array(sums))
    return values


def _aggregate(
    rows: Rows, metrics: Sequence[Additive], terms: dict[str, tuple[Column, ...]]
) -> dict[str, npt.NDArray[Any]]:
    """Sum each term per combination of bins, after checking that every row is valid."""
    bin_counts = sorted({metric.n_bins for metric in metrics})
    bins = [_bin_index(F.col("probability"), count).alias(f"bin_{count}") for count in bin_counts]
    sums = [F.sum(rows.total).alias("mass"), F.count(F.when(~rows.valid, 1)).alias("invalid")]
    for name, columns in terms.items():
        for number, column in enumerate(columns):
            sums.append(F.sum(column).alias(f"{name}_{number}"))
    # One row per combination of bins comes back: small, whatever the size of the frame.
    found = fetch(rows.frame.groupBy(*bins).agg(*sums))
    if found["invalid"].sum():
        raise rows.invalid_row_error()
    if not len(found["invalid"]):
        raise DataError("frame", "hold at least one row", "none")
    if not found["mass"].sum() > 0:
        raise DataError("evidence", "have nonzero weight", "a total of 0")
    return found


def _bin_index(probability: Column, bins: int) -> Column:
    """Return the bin of equal width that a probability falls into."""
    # Invalid values are reported after the aggregation; until then they must not fail the cast.
    valid = F.when((probability >= 0.0) & (probability < 1.0), probability).otherwise(0.0)
    below_one = F.least((valid * float(bins)).cast("int"), F.lit(bins - 1))
    return F.when(probability == 1.0, bins - 1).otherwise(below_one)


def _log_loss_terms(metric: LogLoss, row: _Row) -> tuple[Column, ...]:
    clipped = F.greatest(F.least(row.probability, F.lit(1 - metric.clip)), F.lit(metric.clip))
    negative = row.total - row.positive
    # Spark's log of 0 is null, which a sum would skip; the loss of an impossible row is infinite.
    log_of_zero = F.lit(float("-inf"))
    log_p = F.when(clipped > 0.0, F.log(clipped)).otherwise(log_of_zero)
    log_q = F.when(clipped < 1.0, F.log1p(clipped * -1.0)).otherwise(log_of_zero)
    positive_loss = F.when(row.positive == 0.0, 0.0).otherwise(row.positive * log_p * -1.0)
    negative_loss = F.when(negative == 0.0, 0.0).otherwise(negative * log_q * -1.0)
    return positive_loss + negative_loss, row.total


def _gain_terms(_: LogLossGain, row: _Row) -> tuple[Column, ...]:
    loss, total = _log_loss_terms(LogLoss(), row)
    return loss, row.positive, total


def _brier_terms(_: Brier, row: _Row) -> tuple[Column, ...]:
    p = row.probability
    squared_error = row.positive * (1.0 - p * 2.0) + row.total * p * p
    return squared_error, row.total


def _debiased_terms(_: DebiasedECE, row: _Row) -> tuple[Column, ...]:
    residual = row.positive - row.total * row.probability
    return *row.masses, residual * residual


def _released_terms(_: ReleasedECE, row: _Row) -> tuple[Column, ...]:
    is_positive = row.probability >= 0.5
    correct = F.when(is_positive, row.positive).otherwise(row.total - row.positive)
    confidence = F.when(is_positive, row.probability).otherwise(1.0 - row.probability)
    return correct, row.total, row.total * confidence


_TERMS: dict[type, Terms] = {
    LogLoss: _log_loss_terms,
    ConstantLogLoss: lambda _, row: (row.positive, row.total),
    LogLossGain: _gain_terms,
    Brier: _brier_terms,
    CalibrationInTheLarge: lambda _, row: (row.total * row.probability, row.positive),
    ECE: lambda _, row: row.masses,
    DebiasedECE: _debiased_terms,
    MCE: lambda _, row: row.masses,
    ReleasedECE: _released_terms,
    ReleasedMCE: _released_terms,
}
"""`Additive.terms` as Spark columns, for the metrics whose bins are of equal width."""
