"""The paper's figures, and those it does not show, from scores and rows that a run left."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from calibrank._atomic import atomic_path
from calibrank._validation import Floats
from calibrank.errors import FitError, FlatMapWarning
from calibrank.evidence import ips, naive
from calibrank.experiment.cell import Scored
from calibrank.experiment.runner import Grid, read_scored, scores_file
from calibrank.experiment.spec import Spec
from calibrank.experiment.statistics import Results
from calibrank.experiment.tables import ROWS
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

_BINS = 10


@dataclass(frozen=True, slots=True, eq=False)
class Draw:
    """Draws the figures of one dataset under one spec."""

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
        split = self.spec.splits[0]
        scored = {
            model: found
            for model in self.spec.models
            if (found := self._scored(split, model)) is not None
        }
        if scored:
            shown = self.shown if self.shown in scored else next(iter(scored))
            fits = _fits(scored[shown])
            yield "figure1_paper", self._reliability(shown, scored[shown], fits, paper=True)
            yield "figure1_plain", self._reliability(shown, scored[shown], fits, paper=False)
            yield "figure2", self._distributions(scored)
            yield "figure3", self._functions(shown, scored[shown], fits)
            yield "figure4", self._case(shown, scored[shown], fits)
        if self.spec.estimators:
            yield "figure5", self._estimators(split)
        if self.spec.sweep:
            yield "negatives", self._negatives(split)

    def _scored(self, split: str, model: str) -> Scored | None:
        for cell in self.grid.cells():
            if (cell.split, cell.model, cell.seed) == (
                split,
                model,
                0,
            ) and self.spec in self.grid.specs_for(cell):
                path = scores_file(self.grid.out, cell)
                return read_scored(path) if path.is_file() else None
        return None

    def _reliability(
        self,
        model: str,
        scored: Scored,
        fits: dict[tuple[str, str], CalibrationMap],
        *,
        paper: bool,
    ) -> Figure:
        panels = {}
        for (method, loss), fitted in fits.items():
            words = {"none": "", "naive": ", naive", "ips": ", UERM"}[loss]
            panels[method + words] = _bins(
                fitted.predict(scored.test_scores), scored.test.labels, paper=paper
            )
        kind = "the paper's convention: below 0.5, how often not liked" if paper else "share liked"
        title = f"Reliability of {model} on {self.grid.dataset}"
        return bars_of_gaps(panels, title, kind)

    def _distributions(self, scored: dict[str, Scored]) -> Figure:
        panels = {}
        for model, one in scored.items():
            liked = one.test.labels == 1
            panels[model] = (one.test_scores[~liked], one.test_scores[liked])
        return score_distributions(panels, f"Scores of randomly shown pairs, {self.grid.dataset}")

    def _functions(
        self, model: str, scored: Scored, fits: dict[tuple[str, str], CalibrationMap]
    ) -> Figure:
        scores = np.linspace(scored.test_scores.min(), scored.test_scores.max(), 400)
        curves = {
            method: fits[method, "ips"].predict(scores)
            for method in ("Platt", "Gaussian", "Gamma")
            if (method, "ips") in fits
        }
        return fitted_functions(
            scores, curves, None, f"Fitted functions, {model} on {self.grid.dataset}, UERM"
        )

    def _case(
        self, model: str, scored: Scored, fits: dict[tuple[str, str], CalibrationMap]
    ) -> Figure:
        probabilities = fits["Gaussian", "ips"].predict(scored.test_scores)
        people = {}
        for words, user in _cases(scored, probabilities).items():
            rows = np.flatnonzero(scored.test.users == user)
            rows = rows[np.argsort(-scored.test_scores[rows], kind="stable")][:5]
            names = [f"item {item}" for item in scored.test.items[rows]]
            people[f"user {user}: {words}"] = (names, scored.test_scores[rows], probabilities[rows])
        return top_lists(
            people, f"Top 5 of three users, {model} on {self.grid.dataset}, Gaussian with UERM"
        )

    def _estimators(self, split: str) -> Figure:
        groups = {}
        for model in self.spec.models:
            bars = {}
            for estimator in ("popularity", *self.spec.estimators):
                spread = self.results.spread(
                    spec=self.spec.name, split=split, model=model, method="Gaussian", loss="ips", metric="ECE",
                    propensity=estimator, negatives=self.spec.negatives_for(self.grid.dataset),
                )  # fmt: skip
                if spread is not None:
                    bars[estimator.replace("_", " ")] = (spread.mean, spread.half)
            groups[model] = bars
        return grouped_bars(
            groups, f"ECE by propensity estimator, {self.grid.dataset}, Gaussian with UERM", "ECE"
        )

    def _negatives(self, split: str) -> Figure:
        panels: dict[str, dict[str, tuple[Floats, Floats, Floats]]] = {}
        counts = sorted({*self.spec.sweep, self.spec.negatives_for(self.grid.dataset)} - {0})
        for metric in ("ECE", "LogLoss"):
            for model in self.spec.models:
                spreads = [
                    self.results.spread(
                        spec=self.spec.name, split=split, model=model, method="Gaussian", loss="ips", metric=metric,
                        propensity="popularity", negatives=count,
                    )
                    for count in counts
                ]  # fmt: skip
                known = [
                    (count, one)
                    for count, one in zip(counts, spreads, strict=True)
                    if one is not None
                ]
                if known:
                    x, y = (
                        np.array([count for count, _ in known], float),
                        np.array([one.mean for _, one in known]),
                    )
                    half = np.nan_to_num(np.array([one.half for _, one in known]))
                    panels.setdefault(metric, {})[model] = (x, y, half)
        title = f"The number of negatives sets the answer ({self.grid.dataset}, {split} split, Gaussian with UERM)"
        return lines_with_bands(panels, title, "negatives a positive")


def _fits(scored: Scored) -> dict[tuple[str, str], CalibrationMap]:
    """Every line of Table 1, fitted to one seed's scores."""
    fits = {}
    for _, method, loss in ROWS:
        labels, weights = scored.pairs.labels, scored.weights
        unbiased = loss == "ips"
        evidence = (
            ips(labels, scored.propensity, weights=weights)
            if unbiased
            else naive(labels, weights=weights)
        )
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FlatMapWarning)
                fits[method, loss] = CALIBRATORS[method].fit(scored.pair_scores, evidence)
        except FitError:
            continue  # recorded as failed in the rows
    return fits


def _bins(probabilities: Floats, labels: Floats, *, paper: bool) -> tuple[Floats, Floats]:
    """What happened and what was promised in each of ten bins; below 0.5 the paper asks about not liking."""
    places = np.minimum((probabilities * _BINS).astype(int), _BINS - 1)
    count = np.bincount(places, minlength=_BINS)
    with np.errstate(invalid="ignore", divide="ignore"):
        happened, promised = (
            np.bincount(places, values, _BINS) / count for values in (labels, probabilities)
        )
    if paper:
        low = np.arange(_BINS) < _BINS // 2
        happened, promised = (np.where(low, 1 - values, values) for values in (happened, promised))
    return happened, promised


def _cases(scored: Scored, probabilities: Floats) -> dict[str, int]:
    """Users whose five best are all probable, all improbable, and mixed: the most so of all, found by rule."""
    people = np.unique(scored.test.users)
    least, most = (np.full(len(people), np.nan) for _ in range(2))
    for place, user in enumerate(people):
        mine = np.flatnonzero(scored.test.users == user)
        best = probabilities[mine[np.argsort(-scored.test_scores[mine], kind="stable")][:5]]
        if len(best) == 5:
            least[place], most[place] = best.min(), best.max()
    return {
        "all probable": int(people[np.nanargmax(least)]),
        "all improbable": int(people[np.nanargmin(most)]),
        "mixed": int(people[np.nanargmax(most - least)]),
    }
