"""A cell of the grid: one model trained with one seed on one split, and all its results."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from calibrank._internal.validation import Floats, Mask
from calibrank.curves import Calibrator
from calibrank.data import Dataset, Positives, population_negatives, with_negatives
from calibrank.errors import DataError, FitError, FlatMapWarning
from calibrank.evidence import naive
from calibrank.experiment.results import SWEPT_METHODS
from calibrank.experiment.spec import Spec, configured
from calibrank.maps import CalibrationMap
from calibrank.metrics import Metric
from calibrank.models import Training, train
from calibrank.propensity import (
    ByRating,
    FittedPropensity,
    Known,
    Logistic,
    NaiveBayes,
    Popularity,
    Propensity,
    Random,
    Uniform,
)
from calibrank.registry import CALIBRATORS, EVIDENCE, PROPENSITIES, SPLITS, parse_metric
from calibrank.scorers import Factors
from calibrank.tables import Interactions

CALIBRATION_METRICS: tuple[Metric, ...] = tuple(
    parse_metric(name)
    for name in (
        *("ECE", "ReleasedECE", "MCE", "ReleasedMCE", "LogLoss", "Brier"),
        *("CalibrationInTheLarge", "ECE@5"),
    )
)
RANKING_METRICS: tuple[Metric, ...] = tuple(
    parse_metric(f"{name}@{k}") for name in ("NDCG", "Recall") for k in (1, 3, 5)
)

# Streams of a cell's seed: calibration negatives, and the labels that naive Bayes uses.
_NEGATIVES_STREAM = 3
_NAIVE_BAYES_STREAM = 5
# Naive Bayes estimates the base rate from 5% of the test labels, as in Schnabel et al. (2016).
_NAIVE_BAYES_FRACTION = 0.05
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Cell:
    """What to train; this identifies a result file."""

    dataset: str
    split: str
    model: str
    seed: int
    settings: tuple[tuple[str, float], ...] = ()
    """Settings of the model and its training that differ from the defaults."""

    @property
    def key(self) -> str:
        """A name for files."""
        settings = ""
        if self.settings:
            # Not the settings themselves: values of a spec could lead to another folder.
            digest = hashlib.sha256(repr(self.settings).encode()).hexdigest()
            settings = f"-{digest[:8]}"
        return f"{self.dataset}-{self.split}-{self.model}{settings}-{self.seed}"


@dataclass(frozen=True, slots=True, eq=False)
class CellResult:
    """The result rows of a cell, and what the first spec predicts for the test set.

    `predictions` holds the label, the score, and the probability by each method and loss.
    """

    rows: list[Row]
    predictions: dict[str, Floats]


def run_cell(
    cell: Cell,
    dataset: Dataset,
    specs: Sequence[Spec],
    training: Training,
    checkpoint: Path | None = None,
) -> CellResult:
    """Train the cell's model, then fit and evaluate everything that the specs ask for."""
    if dataset.test is None:
        raise DataError(dataset.name, "have a test set of random exposures", "none")
    split = SPLITS[cell.split]().with_seed(cell.seed)
    kept, held_out = split.divide(dataset.train.positives())
    own = dict(cell.settings)
    model, settings = configured(cell.model, own, training)
    # A fixed number of epochs is trained to the end, without early stopping.
    validation = None if "epochs" in own else held_out
    scorer = train(model, kept, validation, settings, cell.seed, checkpoint).scorer
    evaluations = [
        _Evaluation(cell, dataset, dataset.test, spec, kept, held_out, scorer) for spec in specs
    ]
    rows: list[Row] = []
    for evaluation in evaluations:
        rows.extend(evaluation.rows())
    return CellResult(rows, evaluations[0].predictions)


@dataclass(frozen=True, slots=True, eq=False)
class _Pairs:
    """The calibration pairs with a number of negatives."""

    table: Interactions
    scores: Floats
    propensity: Floats
    weights: Floats

    def fit(self, calibrator: Calibrator, loss: str) -> CalibrationMap:
        """A calibrator fitted with a loss; the method of the paper that cannot fit is flat."""
        labels = self.table.labels
        evidence = naive(labels, weights=self.weights)
        if loss not in ("naive", "none"):
            evidence = EVIDENCE[loss](labels, self.propensity, weights=self.weights)
        with warnings.catch_warnings(action="ignore", category=FlatMapWarning):
            return calibrator.fit(self.scores, evidence)


@dataclass(slots=True, eq=False)
class _Evaluation:
    """Evaluates one trained model under one spec."""

    cell: Cell
    dataset: Dataset
    test: Interactions
    spec: Spec
    kept: Interactions
    held_out: Interactions
    scorer: Factors
    positives: Positives = field(init=False)
    popularity: FittedPropensity = field(init=False)
    predictions: dict[str, Floats] = field(init=False)
    sampled: dict[int, _Pairs] = field(default_factory=dict, init=False)
    """All methods with the same number of negatives are fitted on the same pairs."""

    def __post_init__(self) -> None:
        self.positives = Positives.of(self.kept, self.held_out)
        self.popularity = Popularity(self.spec.power, self.spec.clip).fit(self.kept)
        scores = self.scorer.score(self.test.users, self.test.items).astype(np.float64)
        self.predictions = {"label": self.test.labels, "score": scores}

    def rows(self) -> Iterator[Row]:
        """Rows of the ranking, of every method, and of the sweeps on the first split."""
        for metric in RANKING_METRICS:
            value = metric(self.predictions["score"], self.test.labels, users=self.test.users)
            yield self._row(metric=metric.name, value=value)
        for method in self.spec.methods:
            # A method without parameters does not depend on the loss.
            for loss in self.spec.losses if CALIBRATORS[method].learns else ("none",):
                yield from self._popularity_rows(method, loss, self._count(loss))
        if self.cell.split == self.spec.splits[0]:
            for count in self.spec.sweep:
                # The spec's own number is there already.
                for loss in self.spec.losses:
                    for method in SWEPT_METHODS if count != self._count(loss) else ():
                        yield from self._popularity_rows(method, loss, count)
            for name in self.spec.estimators:
                yield from self._estimator_rows(name)

    def _count(self, loss: str) -> int:
        return self.spec.negatives_for(self.dataset.name, loss)

    def _popularity_rows(self, method: str, loss: str, count: int) -> Iterator[Row]:
        """Rows of a method with popularity propensities."""
        everything = np.ones(len(self.test), dtype=bool)
        labels = {"method": method, "loss": loss, "propensity": "popularity", "negatives": count}
        yield from self._fit_rows(labels, self._pairs(count), everything)

    def _estimator_rows(self, name: str) -> Iterator[Row]:
        """Rows of the swept methods with another propensity estimator."""
        labelled = np.zeros(len(self.test), dtype=bool)
        if PROPENSITIES[name] is NaiveBayes:
            rng = np.random.default_rng([self.cell.seed, _NAIVE_BAYES_STREAM])
            labelled = rng.random(len(self.test)) < _NAIVE_BAYES_FRACTION
        estimator = self._make_estimator(PROPENSITIES[name], labelled)
        if estimator is None:
            return
        fitted = estimator.fit(self.kept)
        # Each estimator implies a base rate of its own, so that it needs a number of its own.
        for count in dict.fromkeys([self._count("ips"), *self.spec.sweep]):
            pairs = self._pairs(count)
            pairs = replace(pairs, propensity=_propensity(fitted, pairs.table))
            for method in SWEPT_METHODS:
                labels = {"method": method, "loss": "ips", "propensity": name, "negatives": count}
                # Test labels that the estimator has used are left out of its evaluation.
                yield from self._fit_rows(labels, pairs, ~labelled)

    def _make_estimator(self, kind: type, labelled: Mask) -> Propensity | None:
        """An estimator of a kind; None where the dataset lacks what it needs."""
        data = self.dataset
        clip = self.spec.clip
        if kind is Uniform:
            # As in the paper's Figure 5, where it equals the naive loss.
            return Uniform(1.0)
        if kind is Random:
            return Random(self.cell.seed, clip)
        if kind is NaiveBayes:
            ratings = None if self.test.ratings is None else self.test.ratings[labelled]
            return NaiveBayes(self.test.labels[labelled], ratings=ratings)
        if kind is Logistic and data.user_features is not None and data.item_features is not None:
            return Logistic(data.user_features, data.item_features, clip=clip)
        if kind is Known and data.propensity is not None:
            return Known(data.propensity, clip=clip)
        return None

    def _pairs(self, count: int) -> _Pairs:
        """Held-out positives with `count` negatives each; 0 means as many as represent all."""
        if count in self.sampled:
            return self.sampled[count]
        each, weight = (count, None) if count else population_negatives(self.positives)
        rng = np.random.default_rng([self.cell.seed, count, _NEGATIVES_STREAM])
        pairs = with_negatives(self.held_out, self.positives, each, rng)
        scores = self.scorer.score(pairs.users, pairs.items).astype(np.float64)
        weights = np.where(pairs.labels == 1, 1.0, weight or 1.0)
        self.sampled[count] = _Pairs(pairs, scores, _propensity(self.popularity, pairs), weights)
        return self.sampled[count]

    def _fit_rows(self, labels: Row, pairs: _Pairs, evaluated: Mask) -> Iterator[Row]:
        """Fit one method and evaluate it on these test rows; a fit that fails is a row too."""
        row = self._row(**labels)
        calibrator = self.spec.calibrator_for(self.dataset.name, labels["method"])
        try:
            fitted = pairs.fit(calibrator, labels["loss"])
        except FitError as error:
            # Readers must see that the result is missing, and why.
            yield {**row, "metric": "failed", "value": 1.0, "note": str(error)}
            return
        probabilities = fitted.predict(self.predictions["score"])
        # The first fit has the spec's number of negatives and propensities, for figures.
        self.predictions.setdefault(f"{labels['method']} {labels['loss']}", probabilities)
        probabilities = probabilities[evaluated]
        test_labels = self.test.labels[evaluated]
        for metric in CALIBRATION_METRICS:
            value = metric(probabilities, test_labels, users=self.test.users[evaluated])
            yield {**row, "metric": metric.name, "value": value}
        yield {**row, "metric": "mean prediction", "value": float(probabilities.mean())}
        yield {**row, "metric": "base rate", "value": float(test_labels.mean())}

    def _row(self, **values: Any) -> Row:
        """A result row with these values; other columns are empty."""
        cell = self.cell
        row: Row = dict.fromkeys(("method", "loss", "propensity", "note"), "")
        row |= {"dataset": cell.dataset, "model": cell.model, "split": cell.split}
        row |= {"seed": cell.seed, "spec": self.spec.name, "negatives": 0}
        return row | values


def _propensity(fitted: FittedPropensity, pairs: Interactions) -> Floats:
    if isinstance(fitted, ByRating) and pairs.ratings is not None:
        return fitted.of_ratings(pairs.ratings)
    return fitted.predict(pairs.users, pairs.items)
