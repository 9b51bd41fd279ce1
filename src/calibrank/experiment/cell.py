"""A cell: one model trained with one seed on one split, and everything that is measured of it."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from calibrank._validation import Floats
from calibrank.data import Dataset, Positives, population_negatives, with_negatives
from calibrank.errors import DataError, FitError, FlatMapWarning
from calibrank.evidence import Evidence, ips, naive, positive_ips
from calibrank.experiment.spec import Spec, split_of
from calibrank.metrics import (
    ECE,
    MCE,
    NDCG,
    Brier,
    CalibrationInTheLarge,
    LogLoss,
    Metric,
    Recall,
    ReleasedECE,
    ReleasedMCE,
    TopN,
)
from calibrank.models import Model, Training, train
from calibrank.propensity import (
    Known,
    Logistic,
    NaiveBayes,
    Popularity,
    Propensity,
    Random,
    Uniform,
)
from calibrank.registry import CALIBRATORS, MODELS
from calibrank.scorers import Factors
from calibrank.tables import Interactions

JUDGES: tuple[Metric, ...] = (
    ECE(), ReleasedECE(), MCE(), ReleasedMCE(), LogLoss(), Brier(), CalibrationInTheLarge(), TopN(ECE(), 5)
)  # fmt: skip
RANKING: tuple[Metric, ...] = tuple(metric(k) for metric in (NDCG, Recall) for k in (1, 3, 5))
PROBED = ("Platt", "Gaussian", "Gamma")
"""Methods that sweeps and other propensities are tried with."""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Cell:
    """What to train: the key of a result file."""

    dataset: str
    split: str
    model: str
    seed: int
    epochs: int
    """Epochs to train for; 0 where validation decides."""
    settings: tuple[tuple[str, float], ...] = ()
    """Of the model, where they are not its defaults."""

    @property
    def key(self) -> str:
        """A name for files."""
        length = f"-{self.epochs}epochs" if self.epochs else ""
        changed = "".join(f"-{name}{value!r}" for name, value in self.settings)
        return f"{self.dataset}-{self.split}-{self.model}{length}{changed}-{self.seed}"

    def recipe(self) -> Model:
        """The model to train."""
        try:
            return replace(MODELS[self.model], **dict(self.settings))  # type: ignore[arg-type]  # the model checks them
        except TypeError:
            names = ", ".join(name for name, _ in self.settings)
            raise DataError(
                f"settings must be those of {self.model}, got {names}. Mend the spec."
            ) from None


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """Scores that figures are drawn from: of the test, and of the pairs calibrated on."""

    test: Interactions
    test_scores: Floats
    pairs: Interactions
    pair_scores: Floats
    propensity: Floats
    weights: Floats


@dataclass(slots=True, eq=False)
class Measured:
    """A cell's rows, and its scores under the first spec's settings."""

    rows: list[Row] = field(default_factory=list)
    scored: Scored | None = None


def run_cell(
    cell: Cell,
    dataset: Dataset,
    specs: list[Spec],
    training: Training,
    checkpoint: Path | None = None,
) -> Measured:
    """Train, then fit and judge everything that the specs ask of this split."""
    if dataset.test is None:
        raise DataError(f"{dataset.name} must have a test under random exposure, got none.")
    kept, held = split_of(cell.split, cell.seed).divide(dataset.train.positives())
    settings = replace(training, epochs=cell.epochs) if cell.epochs else training
    watched = None if cell.epochs else held
    scorer = train(cell.recipe(), kept, watched, settings, cell.seed, checkpoint).scorer
    scores = scorer.score(dataset.test.users, dataset.test.items).astype(np.float64)
    measured = Measured()
    for spec in specs:
        for metric in RANKING:
            value = metric(scores, dataset.test.labels, users=dataset.test.users)
            measured.rows.append(
                {**_blank(cell), "spec": spec.name, "metric": metric.name, "value": value}
            )
        bench = _Bench(cell, dataset, spec, kept, held, scorer, scores)
        measured.rows.extend(bench.rows())
        measured.scored = bench.scored if measured.scored is None else measured.scored
    return measured


def _blank(cell: Cell) -> Row:
    empty = {"spec": "", "method": "", "loss": "", "propensity": "", "negatives": 0, "note": ""}
    return {
        "dataset": cell.dataset,
        "model": cell.model,
        "split": cell.split,
        "seed": cell.seed,
        **empty,
    }


class _Bench:
    """One trained model under one spec."""

    def __init__(
        self,
        cell: Cell,
        dataset: Dataset,
        spec: Spec,
        kept: Interactions,
        held: Interactions,
        scorer: Factors,
        scores: Floats,
    ) -> None:
        assert dataset.test is not None  # noqa: S101  (run_cell has seen to it)
        self.cell, self.dataset, self.spec, self.test = cell, dataset, spec, dataset.test
        self.kept, self.held, self.scorer, self.scores = kept, held, scorer, scores
        self.positives = Positives.of(kept, held)
        self.popularity = Popularity(spec.power, spec.clip).fit(kept)
        self.scored: Scored | None = None

    def rows(self) -> Iterator[Row]:
        main = self.spec.negatives_for(self.dataset.name)
        pairs, pair_scores, weights = self._pairs(main)
        guessed = self.popularity.predict(pairs.users, pairs.items)
        heavy = np.ones(len(pairs)) if weights is None else weights
        self.scored = Scored(self.test, self.scores, pairs, pair_scores, guessed, heavy)
        for method in self.spec.methods:
            yield from self._method(
                method, "popularity", main, pairs, pair_scores, guessed, weights
            )
        for count in self.spec.sweep:
            more, more_scores, more_weights = self._pairs(count)
            each = self.popularity.predict(more.users, more.items)
            for method in PROBED:
                yield from self._method(
                    method, "popularity", count, more, more_scores, each, more_weights
                )
        for name in self.spec.estimators:
            yield from self._estimator(name, main, pairs, pair_scores, weights)

    def _pairs(self, count: int) -> tuple[Interactions, Floats, Floats | None]:
        """Pairs to calibrate on, their scores, and weights where negatives stand for more than one."""
        each, weight = (count, None) if count else population_negatives(self.positives)
        pairs = with_negatives(
            self.held, self.positives, each, np.random.default_rng([self.cell.seed, count, 3])
        )
        scores = self.scorer.score(pairs.users, pairs.items).astype(np.float64)
        return pairs, scores, None if weight is None else np.where(pairs.labels == 1, 1.0, weight)

    def _estimator(
        self, name: str, count: int, pairs: Interactions, scores: Floats, weights: Floats | None
    ) -> Iterator[Row]:
        estimator, rows = self._propensity(name)
        if estimator is None:
            return
        propensity = estimator.fit(self.kept).predict(pairs.users, pairs.items)
        for method in PROBED:
            yield from self._method(
                method, name, count, pairs, scores, propensity, weights, rows, losses=("ips",)
            )

    def _propensity(self, name: str) -> tuple[Propensity | None, Any]:
        """An estimator, and the test rows left to judge by; None where the dataset lacks what it needs."""
        everything, data = slice(None), self.dataset
        if name == "uniform":
            return Uniform(0.5), everything
        if name == "random":
            return Random(self.cell.seed, self.spec.clip), everything
        if name == "naive_bayes":
            spent = np.random.default_rng([self.cell.seed, 5]).random(len(self.test)) < 0.05
            return NaiveBayes(self.test.labels[spent]), ~spent
        if name == "logistic":
            if data.user_features is None or data.item_features is None:
                return None, everything
            return Logistic(data.user_features, data.item_features, clip=self.spec.clip), everything
        return None if data.propensity is None else Known(
            data.propensity, clip=self.spec.clip
        ), everything

    def _method(
        self,
        method: str,
        estimator: str,
        count: int,
        pairs: Interactions,
        scores: Floats,
        propensity: Floats,
        weights: Floats | None,
        judged: Any = slice(None),
        losses: tuple[str, ...] | None = None,
    ) -> Iterator[Row]:
        asked = (losses or self.spec.losses) if CALIBRATORS[method].learns else ("none",)
        for loss in asked:
            about = {
                **_blank(self.cell), "spec": self.spec.name, "method": method, "loss": loss,
                "propensity": estimator, "negatives": count,
            }  # fmt: skip
            evidence = _evidence(loss, pairs.labels, propensity, weights)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", FlatMapWarning)
                    fitted = CALIBRATORS[method].fit(scores, evidence)
            except FitError as error:
                yield {**about, "metric": "failed", "value": 1.0, "note": str(error)}
                continue
            yield from self._judged(about, fitted.predict(self.scores)[judged], judged)

    def _judged(self, about: Row, probabilities: Floats, judged: Any) -> Iterator[Row]:
        labels, users = self.test.labels[judged], self.test.users[judged]
        for metric in JUDGES:
            yield {
                **about,
                "metric": metric.name,
                "value": metric(probabilities, labels, users=users),
            }
        yield {**about, "metric": "mean prediction", "value": float(probabilities.mean())}
        yield {**about, "metric": "base rate", "value": float(labels.mean())}


def _evidence(loss: str, labels: Floats, propensity: Floats, weights: Floats | None) -> Evidence:
    if loss in ("naive", "none"):
        return naive(labels, weights=weights)
    return {"ips": ips, "positive_ips": positive_ips}[loss](labels, propensity, weights=weights)
