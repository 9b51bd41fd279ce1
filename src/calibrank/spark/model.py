"""Fit calibrators and models on Spark frames, apply maps to them, and evaluate probabilities.

Spark sums the terms of each additive metric per bin; the metric itself turns the sums into its
value, so results equal those on one machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from calibrank import metrics as kinds
from calibrank._internal.arguments import instance, listed, whole
from calibrank._internal.validation import add_up
from calibrank.composition import refusal
from calibrank.curves import Auto, Calibrator
from calibrank.errors import DataError
from calibrank.evidence import (
    EvidenceFunction,
    evidence_function,
    impressions,
    ips,
    make_evidence,
    naive,
)
from calibrank.maps import CalibrationMap, LevelTerm
from calibrank.maps.targets.spark import SparkLevels, SparkTarget
from calibrank.metrics import Additive, LogLoss, Metric
from calibrank.metrics.panel import ADDITIVE
from calibrank.model import Model
from calibrank.spark.aggregate import ScoreRange, summary_by_level, summary_of
from calibrank.spark.rows import Rows, column, quoted, require_columns, term_column, whole_number
from calibrank.spark.sums import fetch
from calibrank.summary import Summary
from calibrank.terms import Level
from calibrank.terms.rows import MOST_ROWS

Terms = Callable[[Any, Column, Column, Column], tuple[Column, ...]]

SAMPLE_ROWS = 1_000_000
"""Rows that the driver receives for a joint fit of terms: about 100 MB with a few columns."""


def summarize(
    frame: DataFrame,
    *,
    score: str = "score",
    label: str = "label",
    propensity: str | None = None,
    weight: str | None = None,
    evidence: EvidenceFunction | None = None,
) -> Summary:
    """Summarize a frame: the same `Summary` as `calibrank.frames.summarize` gives for its rows.

    `evidence` is `ips`, `naive` or `impressions`; by default `ips` with a propensity column and
    `naive` without one. No Python runs on the executors. The driver receives tens of thousands of
    bins, and the first 131,072 scores.

    >>> from pyspark.sql import SparkSession
    >>> spark = SparkSession.builder.getOrCreate()
    >>> frame = spark.createDataFrame([(0.1, 0), (0.5, 0), (0.5, 1), (0.9, 1)], ["score", "label"])
    >>> summarize(frame)
    Summary(4 rows in 3 bins over [0.1, 0.9], positive=2, total=4, kind='naive')
    """
    names = {"score": score, "label": label, "propensity": propensity, "weight": weight}
    return summary_of(_rows(frame, _supported(evidence, propensity), names))


def fit(
    model: Calibrator | Model,
    frame: DataFrame,
    *,
    score: str = "score",
    label: str = "label",
    propensity: str | None = None,
    weight: str | None = None,
    evidence: EvidenceFunction | None = None,
    sample_rows: int = SAMPLE_ROWS,
    seed: int = 0,
) -> CalibrationMap:
    """Fit a calibrator, or a model with terms, on a frame: as on its rows on one machine.

    A calibrator is fitted on a summary of all rows, and a `Level` that is the only term on sums by
    level of all rows. Terms that are fitted jointly, and `Auto`, need rows: they are fitted on the
    driver, on a random sample of about `sample_rows`. The map's `record.rows` says how many.

    >>> from calibrank import Platt
    >>> from pyspark.sql import SparkSession
    >>> spark = SparkSession.builder.getOrCreate()
    >>> frame = spark.createDataFrame([(-1.0, 0), (0.0, 1), (1.0, 0), (2.0, 1)], ["score", "label"])
    >>> fit(Platt(), frame) == Platt().fit([-1.0, 0.0, 1.0, 2.0], [0, 1, 0, 1])
    True
    """
    instance("model", model, (Calibrator, Model), 'E.g. Gaussian() + Level("country").')
    sample_rows = whole("sample_rows", sample_rows, 1, MOST_ROWS)
    function = _supported(evidence, propensity)
    names = {"score": score, "label": label, "propensity": propensity, "weight": weight}
    rows = _rows(frame, function, names, model)
    curve = model.curve if isinstance(model, Model) else model
    is_joint = isinstance(model, Model) and model.level_alone is None
    if is_joint or isinstance(curve, Auto):
        return _fit_sample(model, rows, function, sample_rows, seed)
    if not isinstance(model, Model):
        return curve.fit_summary(summary_of(rows))
    summary, by_level = summary_by_level(rows)
    return model.fit_sums(curve.fit_summary(summary), by_level)


def _rows(
    frame: DataFrame,
    function: EvidenceFunction,
    names: dict[str, str | None],
    model: Calibrator | Model | None = None,
) -> Rows:
    """Select the columns of the evidence, and those of terms: levels as text, others as numbers."""
    if isinstance(model, Model) and model.group is not None:
        raise refusal("Group", "Spark")
    kept = {}
    for term in model.terms if isinstance(model, Model) else ():
        for name in term.columns:
            kept[name] = term_column(frame, name, is_level=isinstance(term, Level))
    if function is naive:
        names = {**names, "propensity": None}
    return Rows.of(frame, names, kept, is_impressions=function is impressions)


def _fit_sample(
    model: Calibrator | Model, rows: Rows, function: EvidenceFunction, most: int, seed: int
) -> CalibrationMap:
    """Fit on a random sample of rows, on the driver, after all scores are checked."""
    count = ScoreRange.of(rows).rows
    frame = rows.frame
    if count > most:
        frame = frame.sample(fraction=most / count, seed=seed)
    found = fetch(frame)
    labels = found["label"].astype(np.float64)
    made = make_evidence(function, labels, found.get("propensity"), found.get("weight"))
    columns = dict(zip(rows.names_kept, [found[name] for name in rows.kept], strict=True))
    return model.fit(found["score"].astype(np.float64), made, columns or None)


def _supported(evidence: EvidenceFunction | None, propensity: str | None) -> EvidenceFunction:
    function = evidence_function(evidence, propensity)
    if function not in (naive, ips, impressions):
        rule, remedy = "be naive, ips or impressions", "Summarize the rows on one machine."
        raise DataError("evidence", rule, function.__name__, remedy)
    return function


def transform(
    fitted: CalibrationMap, frame: DataFrame, *, score: str = "score", to: str = "probability"
) -> DataFrame:
    """Add a column of probabilities: lazily, in whole-stage generated code, without Python workers.

    A row that `predict` refuses (a null, NaN, or a number beyond +-1e30) gets null, so that it does
    not fail a job on a cluster; `count_if(probability is null)` counts them. The columns of a map's
    terms are read by name; those of levels are joined with a broadcast of the map's levels.

    >>> from calibrank import Platt
    >>> from pyspark.sql import SparkSession
    >>> spark = SparkSession.builder.getOrCreate()
    >>> fitted = Platt().fit([-1.0, 0.0, 1.0, 2.0], [0, 1, 0, 1])
    >>> transform(fitted, spark.createDataFrame([(0.5,), (None,)], "score double")).collect()
    [Row(score=0.5, probability=0.5), Row(score=None, probability=None)]
    """
    require_columns(frame, {"score": score})
    if to in frame.columns:
        remedy = "Name another with to=... (outputCol=... in a pipeline), or drop it first."
        rule = f"not have a column {to!r} already"
        raise DataError("frame", rule, listed(frame.columns), remedy)
    target = SparkTarget(frame.columns)
    staged = frame
    inputs: list[Any] = []
    levels: list[tuple[LevelTerm, SparkLevels]] = []
    for term in fitted.terms:
        is_level = isinstance(term, LevelTerm)
        columns = [term_column(frame, name, is_level=is_level) for name in term.columns]
        if isinstance(term, LevelTerm):
            depths = sorted(set(map(len, term.keys)))
            levels.append((term, SparkLevels(columns, target.new_name(), depths)))
        inputs.append(levels[-1][1] if is_level else columns[0])
    probability = fitted.where_valid(target, column(score), inputs)
    for each in levels:
        staged = _with_levels(staged, *each)
    for name, expression in target.staged:
        staged = staged.withColumn(name, expression)
    result = staged.withColumn(to, probability)
    return result.select(*[F.col(quoted(name)) for name in (*frame.columns, to)])


def _with_levels(joined: DataFrame, term: LevelTerm, levels: SparkLevels) -> DataFrame:
    """The frame with the numbers of each row's level: one broadcast join per depth of keys."""
    kinds = [kind for _, kind in joined.select(*levels.columns).dtypes]
    for depth in levels.depths:
        rows = []
        for node, key in enumerate(term.keys, start=1):
            values = [
                text if kind == "string" else whole_number(text)
                for text, kind in zip(key, kinds, strict=False)
            ]
            # A text that no number is written as is a level of no row.
            if len(key) == depth and None not in values:
                rows.append((*values, *[float(numbers[node]) for numbers in levels.values]))
        keys = [f"{levels.name}_{depth}_key_{place}" for place in range(depth)]
        names = [*keys, *levels.names(depth)]
        types = [*kinds[:depth], *["double"] * len(levels.values)]
        schema = ", ".join(map(" ".join, zip(names, types, strict=True)))
        table = joined.sparkSession.createDataFrame(rows, schema)
        is_same = _are_equal(levels.columns[:depth], [F.col(name) for name in keys], kinds)
        joined = joined.join(F.broadcast(table), is_same, "left")
    return joined


def _are_equal(columns: Sequence[Column], keys: Sequence[Column], kinds: Sequence[str]) -> Column:
    """Whether the columns have the values of a key, as a condition that Spark joins fast by.

    It finds whole numbers much faster than texts: rows are joined by a hash of the texts, and then
    the texts themselves are compared. Spark would join by an equality that stands alone.
    """
    if len(keys) == 1 and kinds[0] != "string":
        return columns[0] == keys[0]
    is_same = F.xxhash64(*columns) == F.xxhash64(*keys)
    for found, key in zip(columns, keys, strict=True):
        is_same = is_same & F.coalesce(found == key, F.lit(False))  # noqa: FBT003  (a literal)
    return is_same


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
    names = [metric.name for metric in metrics]
    # Results are returned by name.
    if len(set(names)) < len(names):
        raise DataError("metrics", "have distinct names", ", ".join(names), "Ask for each alone.")
    with_users = [metric.name for metric in metrics if metric.needs_users]
    if with_users:
        rule, remedy = "need no users on Spark", "Evaluate a sample of users instead."
        raise DataError("metrics", rule, ", ".join(with_users), remedy)
    roles = {"label": label, "propensity": propensity, "weight": weight}
    rows = Rows.of(frame, {"probability": probability, **roles})
    summed = [each for each in metrics if isinstance(each, Additive) and type(each) in _TERMS]
    values = _evaluate_sums(rows, summed)
    if len(values) < len(names):
        summary = summarize(
            frame, score=probability, label=label, propensity=propensity, weight=weight
        )
        for metric in metrics:
            if metric.name not in values:
                values[metric.name] = metric(summary.scores, summary.evidence)
    return {name: values[name] for name in names}


def _evaluate_sums(rows: Rows, metrics: Sequence[Additive]) -> dict[str, float]:
    """Compute the metrics whose terms Spark can sum, in one pass over the rows."""
    row = (F.col("probability"), rows.positive, rows.total)
    bins = [_bin_index(row[0], count) for count in {metric.n_bins for metric in metrics}]
    sums = [F.sum(rows.total).alias("mass"), F.count(F.when(~rows.valid, 1)).alias("invalid")]
    names: dict[Additive, list[str]] = {}
    for metric in metrics:
        terms = _TERMS[type(metric)](metric, *row)
        names[metric] = [f"{metric.name}_{number}" for number in range(len(terms))]
        sums += [F.sum(term).alias(name) for term, name in zip(terms, names[metric], strict=True)]
    # One row per combination of bins comes back: small, whatever the size of the frame.
    found = fetch(rows.frame.groupBy(*bins).agg(*sums))
    if found["invalid"].sum():
        raise rows.invalid_row_error()
    if not len(found["invalid"]):
        raise DataError("frame", "hold at least one row", "none")
    if not found["mass"].sum() > 0:
        raise DataError("evidence", "have nonzero weight", "a total of 0")
    values = {}
    for metric in metrics:
        bin_of = found[f"bin_{metric.n_bins}"].astype(np.intp)
        of_bins = [add_up(bin_of, found[name], metric.n_bins) for name in names[metric]]
        values[metric.name] = metric.compute(np.array(of_bins))
    return values


def _bin_index(probability: Column, bins: int) -> Column:
    """Return the bin of equal width that a probability falls into."""
    # Invalid values are reported after the aggregation; until then they must not fail the cast.
    valid = F.when((probability >= 0.0) & (probability < 1.0), probability).otherwise(0.0)
    below_one = F.least((valid * float(bins)).cast("int"), F.lit(bins - 1))
    return F.when(probability == 1.0, bins - 1).otherwise(below_one).alias(f"bin_{bins}")


def _log_loss(metric: LogLoss, p: Column, positive: Column, total: Column) -> tuple[Column, ...]:
    clipped = F.greatest(F.least(p, F.lit(1 - metric.clip)), F.lit(metric.clip))
    negative = total - positive
    # Spark's log of 0 is null, which a sum would skip; the loss of an impossible row is infinite.
    log_of_zero = F.lit(float("-inf"))
    log_p = F.when(clipped > 0.0, F.log(clipped)).otherwise(log_of_zero)
    log_q = F.when(clipped < 1.0, F.log1p(clipped * -1.0)).otherwise(log_of_zero)
    positive_loss = F.when(positive == 0.0, 0.0).otherwise(positive * log_p * -1.0)
    negative_loss = F.when(negative == 0.0, 0.0).otherwise(negative * log_q * -1.0)
    return positive_loss + negative_loss, total


def _masses(_: Any, p: Column, positive: Column, total: Column) -> tuple[Column, ...]:
    return positive, total, total * p


def _released(_: Any, p: Column, positive: Column, total: Column) -> tuple[Column, ...]:
    correct = F.when(p >= 0.5, positive).otherwise(total - positive)
    confidence = F.when(p >= 0.5, p).otherwise(1.0 - p)
    return correct, total, total * confidence


_TERMS: dict[type, Terms] = {
    LogLoss: _log_loss,
    kinds.ConstantLogLoss: lambda _, __, positive, total: (positive, total),
    kinds.LogLossGain: lambda _, p, y, n: (_log_loss(LogLoss(), p, y, n)[0], y, n),
    kinds.Brier: lambda _, p, y, n: (y * (1.0 - p * 2.0) + n * p * p, n),
    kinds.CalibrationInTheLarge: lambda _, p, y, n: (n * p, y),
    kinds.ECE: _masses,
    kinds.DebiasedECE: lambda _, p, y, n: (*_masses(_, p, y, n), (y - n * p) * (y - n * p)),
    kinds.MCE: _masses,
    kinds.ReleasedECE: _released,
    kinds.ReleasedMCE: _released,
}
"""`Additive.terms` as Spark columns, for the metrics whose bins are of equal width."""
