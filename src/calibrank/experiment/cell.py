"""A cell of the grid: one model trained with one seed on one split, and all its results."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrank._internal.validation import Floats
from calibrank.data import Dataset, Positives, population_negatives, with_negatives
from calibrank.errors import DataError, FitError
from calibrank.experiment.scored import Scored, ScoredPairs
from calibrank.experiment.spec import Spec
from calibrank.metrics import Metric
from calibrank.models import Model, Training, train
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
from calibrank.registry import CALIBRATORS, METRICS, MODELS, PROPENSITIES, SPLITS, parse_metric
from calibrank.scorers import Factors
from calibrank.tables import Interactions

CALIBRATION_METRICS: tuple[Metric, ...] = tuple(
    METRICS[name]
    for name in (
        *("ECE", "ReleasedECE", "MCE", "ReleasedMCE", "LogLoss", "Brier"),
        *("CalibrationInTheLarge", "ECE@5"),
    )
)
RANKING_METRICS: tuple[Metric, ...] = tuple(
    parse_metric(f"{name}@{k}") for name in ("NDCG", "Recall") for k in (1, 3, 5)
)
SWEPT_METHODS = ("Platt", "Gaussian", "Gamma")
"""The methods for which other numbers of negatives and other propensities are tried."""
SCORED_LOSSES = ("naive", "ips")
"""The losses of the paper, whose calibration pairs are saved for the figures."""

# Streams of a cell's seed: calibration negatives, and the labels that naive Bayes uses.
_NEGATIVES_STREAM = 3
_NAIVE_BAYES_STREAM = 5
# Naive Bayes estimates the base rate from 5% of the test labels, as in Schnabel et al. (2016).
_NAIVE_BAYES_FRACTION = 0.05
Row = dict[str, Any]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Cell:
    """What to train; this identifies a result file."""

    dataset: str
    split: str
    model: str
    seed: int
    epochs: int
    """Epochs to train for; 0 where validation decides."""
    settings: tuple[tuple[str, float], ...] = ()
    """Model settings that differ from the defaults."""

    @property
    def key(self) -> str:
        """A name for files."""
        epochs = f"-{int(self.epochs)}epochs" if self.epochs else ""
        settings = ""
        if self.settings:
            # Not the settings themselves: values of a spec could lead to another folder.
            digest = hashlib.sha256(repr(self.settings).encode()).hexdigest()
            settings = f"-{digest[:8]}"
        return f"{self.dataset}-{self.split}-{self.model}{epochs}{settings}-{self.seed}"

    def configured(self, training: Training) -> tuple[Model, Training]:
        """The model to train and how; of the cell's settings, a learning rate is the trainer's."""
        settings: dict[str, Any] = dict(self.settings)
        if "learning_rate" in settings:
            training = replace(training, learning_rate=settings.pop("learning_rate"))
        if self.epochs:
            training = replace(training, epochs=self.epochs)
        try:
            return replace(MODELS[self.model], **settings), training
        except TypeError:
            raise DataError(
                "settings", f"be those of {self.model}", ", ".join(settings), "Correct the spec."
            ) from None


@dataclass(slots=True, eq=False)
class CellResult:
    """The result rows of a cell, and its scores under the first spec."""

    rows: list[Row] = field(default_factory=list)
    scored: Scored | None = None


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
    model, settings = cell.configured(training)
    # A fixed number of epochs is trained to the end, without early stopping.
    validation = None if cell.epochs else held_out
    scorer = train(model, kept, validation, settings, cell.seed, checkpoint).scorer
    scores = scorer.score(dataset.test.users, dataset.test.items).astype(np.float64)
    result = CellResult()
    for spec in specs:
        evaluation = _Evaluation(cell, dataset, dataset.test, spec, kept, held_out, scorer, scores)
        result.rows.extend(evaluation.ranking_rows())
        result.rows.extend(evaluation.calibration_rows())
        if result.scored is None:
            result.scored = evaluation.scored()
    return result


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
    test_scores: Floats
    positives: Positives = field(init=False)
    popularity: FittedPropensity = field(init=False)
    sampled: dict[int, ScoredPairs] = field(default_factory=dict, init=False)
    """All methods with the same number of negatives are fitted on the same pairs."""

    def __post_init__(self) -> None:
        self.positives = Positives.of(self.kept, self.held_out)
        self.popularity = Popularity(self.spec.power, self.spec.clip).fit(self.kept)

    def scored(self) -> Scored:
        """The scores that figures are drawn from."""
        losses = [loss for loss in SCORED_LOSSES if loss in self.spec.losses]
        by_loss = {loss: self._pairs(self._count(loss)) for loss in losses}
        return Scored(self.test, self.test_scores, by_loss)

    def ranking_rows(self) -> Iterator[Row]:
        for metric in RANKING_METRICS:
            value = metric(self.test_scores, self.test.labels, users=self.test.users)
            yield self._row(metric=metric.name, value=value)

    def calibration_rows(self) -> Iterator[Row]:
        """Rows of every method, then of the sweeps over negatives and over propensities."""
        for method in self.spec.methods:
            # A method without parameters does not depend on the loss.
            losses = self.spec.losses if CALIBRATORS[method].learns else ("none",)
            for loss in losses:
                yield from self._popularity_rows(method, loss, self._count(loss))
        # Other numbers and other propensities are tried on the first split only.
        if self.cell.split == self.spec.splits[0]:
            yield from self._sweep_rows()
            for name in self.spec.estimators:
                yield from self._estimator_rows(name)

    def _sweep_rows(self) -> Iterator[Row]:
        for count in self.spec.sweep:
            for loss in self.spec.losses:
                # The spec's own number is there already.
                if count == self._count(loss):
                    continue
                for method in SWEPT_METHODS:
                    yield from self._popularity_rows(method, loss, count)

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
            labelled = self._naive_bayes_rows()
        estimator = self._make_estimator(name, labelled)
        if estimator is None:
            return
        fitted = estimator.fit(self.kept)
        # Each estimator implies a base rate of its own, so that it needs a number of its own.
        for count in dict.fromkeys([self._count("ips"), *self.spec.sweep]):
            pairs = self._pairs(count)
            pairs = replace(pairs, propensity=_propensity(fitted, pairs.pairs))
            for method in SWEPT_METHODS:
                labels = {"method": method, "loss": "ips", "propensity": name, "negatives": count}
                # Test labels that the estimator has used are left out of its evaluation.
                yield from self._fit_rows(labels, pairs, ~labelled)

    def _make_estimator(self, name: str, labelled: Mask) -> Propensity | None:
        """An estimator by name; None where the dataset lacks what it needs."""
        kind = PROPENSITIES[name]
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

    def _naive_bayes_rows(self) -> Mask:
        rng = np.random.default_rng([self.cell.seed, _NAIVE_BAYES_STREAM])
        return rng.random(len(self.test)) < _NAIVE_BAYES_FRACTION

    def _pairs(self, count: int) -> ScoredPairs:
        """Held-out positives with `count` negatives each; 0 means as many as represent all."""
        if count in self.sampled:
            return self.sampled[count]
        each, weight = (count, None) if count else population_negatives(self.positives)
        rng = np.random.default_rng([self.cell.seed, count, _NEGATIVES_STREAM])
        pairs = with_negatives(self.held_out, self.positives, each, rng)
        scores = self.scorer.score(pairs.users, pairs.items).astype(np.float64)
        weights = np.where(pairs.labels == 1, 1.0, weight or 1.0)
        propensity = _propensity(self.popularity, pairs)
        self.sampled[count] = ScoredPairs(pairs, scores, propensity, weights)
        return self.sampled[count]

    def _fit_rows(self, labels: Row, pairs: ScoredPairs, evaluated: Mask) -> Iterator[Row]:
        """Fit one method and evaluate it on these test rows; a fit that fails is a row too."""
        row = self._row(**labels)
        calibrator = self.spec.calibrator_for(self.dataset.name, labels["method"])
        try:
            fitted = pairs.fit(calibrator, labels["loss"])
        except FitError as error:
            # Readers must see that the result is missing, and why.
            yield {**row, "metric": "failed", "value": 1.0, "note": str(error)}
            return
        probabilities = fitted.predict(self.test_scores)[evaluated]
        test_labels = self.test.labels[evaluated]
        test_users = self.test.users[evaluated]
        for metric in CALIBRATION_METRICS:
            value = metric(probabilities, test_labels, users=test_users)
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
