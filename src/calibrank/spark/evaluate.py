"""Judging a probability column of a Spark frame: sums of each metric's own terms, by native aggregation."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from calibrank._validation import add_up
from calibrank.errors import DataError
from calibrank.metrics import (
    ECE,
    MCE,
    NDCG,
    Additive,
    Brier,
    CalibrationInTheLarge,
    LogLoss,
    Metric,
    Recall,
    ReleasedECE,
    ReleasedMCE,
    TopN,
)
from calibrank.spark.aggregate import summarize
from calibrank.spark.collect import fetch
from calibrank.spark.rows import Rows


class _Row(NamedTuple):
    """A row as columns: what was predicted, and the evidence."""

    held: Column
    positive: Column
    total: Column


Terms = Callable[[Any, _Row], tuple[Column, ...]]


def evaluate(
    frame: DataFrame,
    metrics: Sequence[Metric] = (LogLoss(), Brier(), ECE(), MCE(), CalibrationInTheLarge()),
    *,
    probability: str = "probability",
    label: str = "label",
    propensity: str | None = None,
    weight: str | None = None,
) -> dict[str, float]:
    """Each metric's value on a frame, by name; the same as on one machine.

    Proper scores and errors over equally wide bins are summed row by row. Others that need no users (Miscalibration,
    Discrimination, EqualMassECE) are computed on a summary of the probabilities, as `calibrank evaluate` does.

    >>> from calibrank import Brier
    >>> from pyspark.sql import SparkSession
    >>> spark = SparkSession.builder.getOrCreate()
    >>> frame = spark.createDataFrame([(0.5, 0), (0.5, 1)], ["probability", "label"])
    >>> evaluate(frame, [Brier()])
    {'Brier': 0.25}
    """
    names = [metric.name for metric in metrics]
    if len(set(names)) < len(names):
        raise DataError(
            f"metrics must have names of their own, got {', '.join(names)}. Ask for one at a time."
        )
    for metric in metrics:
        if isinstance(metric, NDCG | Recall | TopN):
            raise DataError(
                f"metrics must need no users on Spark, got {metric.name}. Evaluate a sample of users instead."
            )
    rows = Rows.of(
        frame, probability=probability, label=label, propensity=propensity, weight=weight
    )
    summed = [
        metric for metric in metrics if isinstance(metric, Additive) and type(metric) in _TERMS
    ]
    values = _sum_up(rows, summed)
    if len(values) < len(names):
        summary = summarize(
            frame, score=probability, label=label, propensity=propensity, weight=weight
        )
        values |= {
            m.name: m(summary.scores, summary.evidence) for m in metrics if m.name not in values
        }
    return {name: values[name] for name in names}


def _sum_up(rows: Rows, metrics: Sequence[Additive]) -> dict[str, float]:
    """Values of metrics whose terms Spark can sum, in one pass: terms by cell, as the metric itself defines them."""
    sizes = sorted({metric.size for metric in metrics})
    cells = [_cell(F.col("probability"), size).alias(f"cell_{size}") for size in sizes]
    row = _Row(F.col("probability"), rows.positive, rows.total)
    terms = [F.sum(term) for metric in metrics for term in _TERMS[type(metric)](metric, row)]
    named = [term.alias(f"term_{at}") for at, term in enumerate(terms)]
    mass, broken = F.sum(rows.total).alias("mass"), F.count(F.when(~rows.valid, 1)).alias("broken")
    found = fetch(rows.frame.groupBy(*cells).agg(mass, broken, *named))
    if found["broken"].sum():
        raise rows.invalid_row_error()
    if not len(found["broken"]):
        raise DataError("frame must hold at least one row, got none.")
    if not found["mass"].sum() > 0:
        raise DataError("evidence must weigh something, got a total of 0.")
    at = 0
    values = {}
    for metric in metrics:
        count = len(_TERMS[type(metric)](metric, row))
        cell = found[f"cell_{metric.size}"].astype(np.intp)
        sums = [add_up(cell, found[f"term_{at + term}"], metric.size) for term in range(count)]
        values[metric.name] = metric.compute(np.array(sums))
        at += count
    return values


def _cell(held: Column, size: int) -> Column:
    """The cell of equally wide bins; a value outside [0, 1] is reported later, and must not fail the cast."""
    inside = F.when((held >= 0.0) & (held < 1.0), held).otherwise(0.0)
    inner = F.least((inside * float(size)).cast("int"), F.lit(size - 1))
    return F.when(held == 1.0, size - 1).otherwise(inner)


def _log_loss(metric: LogLoss, row: _Row) -> tuple[Column, ...]:
    clip = metric.clip
    held = F.greatest(F.least(row.held, F.lit(1 - clip)), F.lit(clip))
    negative = row.total - row.positive
    never = F.lit(float("-inf"))
    yes = F.when(held > 0.0, F.log(held)).otherwise(never)
    no = F.when(held < 1.0, F.log1p(held * -1.0)).otherwise(never)
    liked = F.when(row.positive == 0.0, 0.0).otherwise(row.positive * yes * -1.0)
    disliked = F.when(negative == 0.0, 0.0).otherwise(negative * no * -1.0)
    return liked + disliked, row.total


def _brier(_: Brier, row: _Row) -> tuple[Column, ...]:
    return row.positive * (1.0 - row.held * 2.0) + row.total * row.held * row.held, row.total


def _in_the_large(_: CalibrationInTheLarge, row: _Row) -> tuple[Column, ...]:
    return row.total * row.held, row.positive


def _gap(_: ECE, row: _Row) -> tuple[Column, ...]:
    return row.positive, row.total, row.total * row.held


def _released(_: ReleasedECE, row: _Row) -> tuple[Column, ...]:
    likely = row.held >= 0.5
    right = F.when(likely, row.positive).otherwise(row.total - row.positive)
    return right, row.total, row.total * F.when(likely, row.held).otherwise(1.0 - row.held)


_TERMS: dict[type, Terms] = {
    LogLoss: _log_loss,
    Brier: _brier,
    CalibrationInTheLarge: _in_the_large,
    ECE: _gap,
    MCE: _gap,
    ReleasedECE: _released,
    ReleasedMCE: _released,
}
