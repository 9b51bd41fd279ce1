"""The paper's figures and further ones, drawn from the scores and rows of a run."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from calibrank._atomic import atomic_path
from calibrank._validation import Floats
from calibrank.errors import FitError, FlatMapWarning
from calibrank.evidence import ips, naive
from calibrank.experiment.runner import Grid
from calibrank.experiment.scored import Scored
from calibrank.experiment.spec import Spec
from calibrank.experiment.statistics import Results, Spread
from calibrank.experiment.tables import LOSS_SUFFIXES, PUBLISHED_ROWS, Fit
from calibrank.maps import CalibrationMap
from calibrank.plots import (
    bars_of_gaps,
    fitted_functions,
    grouped_bars,
    lines_with_bands,
    score_distributions,
    top_lists,
)
from calibrank.registry import CALIBRATORS

# The paper's reliability diagrams have ten bins, its case study lists of five.
_BINS = 10
_LIST_LENGTH = 5

Fits = dict[Fit, CalibrationMap]
Line = tuple[Floats, Floats, Floats]


@dataclass(frozen=True, slots=True, eq=False)
class Figures:
    """The figures of one dataset under one spec."""

    grid: Grid
    results: Results
    spec: Spec
    shown: str = "LightGCN"
    """The model of Figures 1, 3 and 4."""

    def save(self, folder: Path) -> list[Path]:
        """Write every figure as PNG and SVG."""
        paths = []
        for name, figure in self._all():
            for ending in ("png", "svg"):
                path = folder / f"{name}.{ending}"
                with atomic_path(path) as partial:
                    figure.savefig(partial, dpi=150, format=ending)
                paths.append(path)
        return paths

    def _all(self) -> Iterator[tuple[str, Figure]]:
        scored = self._load_scored()
        if scored:
            shown = self.shown if self.shown in scored else next(iter(scored))
            # Fitted again rather than saved: a fit takes milliseconds.
            fits = _fit_all(scored[shown])
            yield "figure1_paper", self._reliability(shown, scored[shown], fits, paper=True)
            yield "figure1_plain", self._reliability(shown, scored[shown], fits, paper=False)
            yield "figure2", self._distributions(scored)
            yield "figure3", self._functions(shown, scored[shown], fits)
            yield "figure4", self._case_study(shown, scored[shown], fits)
        if self.spec.estimators:
            yield "figure5", self._estimators()
        if self.spec.sweep:
            yield "negatives", self._negatives()

    @property
    def _split(self) -> str:
        return self.spec.splits[0]

    def _load_scored(self) -> dict[str, Scored]:
        """The scores of seed 0, by model."""
        scored = {}
        for cell in self.grid.cells():
            if cell.split != self._split or cell.seed != 0:
                continue
            path = self.grid.scores_file(cell)
            if self.spec in self.grid.specs_for(cell) and path.is_file():
                scored[cell.model] = Scored.load(path)
        # In the order of the spec, not of the grid.
        return {model: scored[model] for model in self.spec.models if model in scored}

    def _reliability(
        self,
        model: str,
        scored: Scored,
        fits: Fits,
        *,
        paper: bool,
    ) -> Figure:
        panels = {}
        for (method, loss), fitted in fits.items():
            probabilities = fitted.predict(scored.test_scores)
            bins = _reliability_bins(probabilities, scored.test.labels, paper=paper)
            panels[method + LOSS_SUFFIXES[loss]] = bins
        ylabel = "fraction liked"
        if paper:
            ylabel = "the paper's convention: below 0.5, the fraction not liked"
        return bars_of_gaps(panels, f"Reliability of {model} on {self.grid.dataset}", ylabel)

    def _distributions(self, scored: dict[str, Scored]) -> Figure:
        panels = {}
        for model, of_model in scored.items():
            liked = of_model.test.labels == 1
            panels[model] = (of_model.test_scores[~liked], of_model.test_scores[liked])
        return score_distributions(panels, f"Scores of randomly shown pairs, {self.grid.dataset}")

    def _functions(self, model: str, scored: Scored, fits: Fits) -> Figure:
        scores = np.linspace(scored.test_scores.min(), scored.test_scores.max(), 400)
        curves = {}
        for method in ("Platt", "Gaussian", "Gamma"):
            if (method, "ips") in fits:
                curves[method] = fits[Fit(method, "ips")].predict(scores)
        title = f"Fitted functions, {model} on {self.grid.dataset}, UERM"
        return fitted_functions(scores, curves, None, title)

    def _case_study(self, model: str, scored: Scored, fits: Fits) -> Figure:
        probabilities = fits[Fit("Gaussian", "ips")].predict(scored.test_scores)
        panels = {}
        for description, user in _example_users(scored, probabilities).items():
            rows = _top_rows(scored, user)
            names = [f"item {item}" for item in scored.test.items[rows]]
            scores = scored.test_scores[rows]
            panels[f"user {user}: {description}"] = (names, scores, probabilities[rows])
        title = f"Top 5 of three users, {model} on {self.grid.dataset}, Gaussian with UERM"
        return top_lists(panels, title)

    def _estimators(self) -> Figure:
        count = self.spec.negatives_for(self.grid.dataset)
        groups = {}
        for model in self.spec.models:
            bars = {}
            for estimator in ("popularity", *self.spec.estimators):
                spread = self._spread(model, "ECE", estimator, count)
                if spread is not None:
                    bars[estimator.replace("_", " ")] = (spread.mean, spread.half)
            groups[model] = bars
        title = f"ECE by propensity estimator, {self.grid.dataset}, Gaussian with UERM"
        return grouped_bars(groups, title, "ECE")

    def _negatives(self) -> Figure:
        panels: dict[str, dict[str, Line]] = {}
        for metric in ("ECE", "LogLoss"):
            for model in self.spec.models:
                line = self._line_over_negatives(model, metric)
                if line is not None:
                    panels.setdefault(metric, {})[model] = line
        title = (
            "Results depend on the number of negatives "
            f"({self.grid.dataset}, {self._split} split, Gaussian with UERM)"
        )
        return lines_with_bands(panels, title, "negatives per positive")

    def _line_over_negatives(self, model: str, metric: str) -> Line | None:
        """Numbers of negatives, means and half intervals; None without results."""
        counts = {*self.spec.sweep, self.spec.negatives_for(self.grid.dataset)}
        points = []
        # 0 means as many as represent all unobserved pairs, which has no place on the axis.
        for count in sorted(counts - {0}):
            spread = self._spread(model, metric, "popularity", count)
            if spread is not None:
                points.append((float(count), spread.mean, spread.half))
        if not points:
            return None
        x, means, halves = np.array(points).T
        return x, means, np.nan_to_num(halves)

    def _spread(
        self,
        model: str,
        metric: str,
        estimator: str,
        negatives: int,
    ) -> Spread | None:
        return self.results.spread(
            spec=self.spec.name,
            split=self._split,
            model=model,
            method="Gaussian",
            loss="ips",
            metric=metric,
            propensity=estimator,
            negatives=negatives,
        )


def _fit_all(scored: Scored) -> Fits:
    """Every row of Table 1, fitted to the scores of one seed."""
    labels = scored.pairs.labels
    unbiased = ips(labels, scored.propensity, weights=scored.weights)
    biased = naive(labels, weights=scored.weights)
    fits = {}
    for _, method, loss in PUBLISHED_ROWS:
        evidence = unbiased if loss == "ips" else biased
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FlatMapWarning)
                fits[Fit(method, loss)] = CALIBRATORS[method].fit(scored.pair_scores, evidence)
        except FitError:
            # The rows of the run hold the reason.
            continue
    return fits


def _reliability_bins(
    probabilities: Floats, labels: Floats, *, paper: bool
) -> tuple[Floats, Floats]:
    """The observed fraction and the mean prediction in each of ten equal-width bins.

    In the paper's convention, bins below 0.5 show the fraction of negatives.
    """
    bins = np.minimum((probabilities * _BINS).astype(int), _BINS - 1)
    count = np.bincount(bins, minlength=_BINS)
    # Empty bins give NaN, which is not drawn.
    with np.errstate(invalid="ignore", divide="ignore"):
        observed = np.bincount(bins, labels, _BINS) / count
        predicted = np.bincount(bins, probabilities, _BINS) / count
    if paper:
        is_low = np.arange(_BINS) < _BINS // 2
        observed = np.where(is_low, 1 - observed, observed)
        predicted = np.where(is_low, 1 - predicted, predicted)
    return observed, predicted


def _example_users(scored: Scored, probabilities: Floats) -> dict[str, int]:
    """Three users chosen by rule: top five all probable, all improbable, and most varied."""
    users = np.unique(scored.test.users)
    lowest = np.full(len(users), np.nan)
    highest = np.full(len(users), np.nan)
    for place, user in enumerate(users):
        top = probabilities[_top_rows(scored, user)]
        if len(top) == _LIST_LENGTH:
            lowest[place] = top.min()
            highest[place] = top.max()
    return {
        "all probable": int(users[np.nanargmax(lowest)]),
        "all improbable": int(users[np.nanargmin(highest)]),
        "mixed": int(users[np.nanargmax(highest - lowest)]),
    }


def _top_rows(scored: Scored, user: int) -> npt.NDArray[np.intp]:
    """The test rows of a user's highest scores, best first."""
    rows = np.flatnonzero(scored.test.users == user)
    return rows[np.argsort(-scored.test_scores[rows], kind="stable")][:_LIST_LENGTH]
