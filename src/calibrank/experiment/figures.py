"""The paper's figures and further ones, drawn from the scores and rows of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from calibrank._internal.atomic import atomic_path
from calibrank._internal.validation import Floats
from calibrank.errors import FitError
from calibrank.experiment.protocol import Fit, Protocol
from calibrank.experiment.published import LOSS_SUFFIXES, PUBLISHED_ROWS
from calibrank.experiment.runner import Grid
from calibrank.experiment.scored import Scored
from calibrank.experiment.spec import Spec
from calibrank.experiment.tables import nearest_negatives
from calibrank.maps import CalibrationMap
from calibrank.plots import (
    bars_of_gaps,
    fitted_functions,
    grouped_bars,
    lines_with_bands,
    score_distributions,
    top_lists,
)

# The paper's reliability diagrams have ten bins, its case study lists of five.
_BINS = 10
_LIST_LENGTH = 5

_SHOWN_FIT = Fit("Gaussian", "ips")

Fits = dict[Fit, CalibrationMap]
Line = tuple[Floats, Floats, Floats]
Bars = dict[str, dict[str, tuple[float, float]]]
# A bar that is not drawn: no fit exists.
_NO_BAR = (float("nan"), float("nan"))


@dataclass(frozen=True, slots=True, eq=False)
class Figures:
    """The figures of one protocol; those of scores need `scored`, the scores of seed 0 by model."""

    protocol: Protocol
    scored: Mapping[str, Scored]
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
        scored = self.scored
        if scored:
            shown = self.shown if self.shown in scored else next(iter(scored))
            # Fitted again rather than saved: a fit takes milliseconds.
            fits = _fit_all(self.protocol.spec, self.protocol.dataset, scored[shown])
            yield "figure1_paper", self._reliability(shown, scored[shown], fits, paper=True)
            yield "figure1_plain", self._reliability(shown, scored[shown], fits, paper=False)
            yield "figure2", self._distributions(scored)
            yield "figure3", self._functions(shown, scored[shown], fits)
            yield "figure4", self._case_study(shown, scored[shown], fits)
        if self._estimator_names():
            yield "figure5", self._estimators()
        if self.protocol.spec.sweep:
            yield "negatives", self._negatives()

    def _reliability(self, model: str, scored: Scored, fits: Fits, *, paper: bool) -> Figure:
        panels = {}
        for fit, fitted in fits.items():
            probabilities = fitted.predict(scored.test_scores)
            bins = _reliability_bins(probabilities, scored.test.labels, paper=paper)
            panels[fit.method + LOSS_SUFFIXES[fit.loss]] = bins
        ylabel = "fraction liked"
        if paper:
            ylabel = "the paper's convention: below 0.5, the fraction not liked"
        return bars_of_gaps(panels, f"Reliability of {model} on {self.protocol.dataset}", ylabel)

    def _distributions(self, scored: Mapping[str, Scored]) -> Figure:
        panels = {}
        for model, of_model in scored.items():
            liked = of_model.test.labels == 1
            panels[model] = (of_model.test_scores[~liked], of_model.test_scores[liked])
        return score_distributions(
            panels, f"Scores of randomly shown pairs, {self.protocol.dataset}"
        )

    def _functions(self, model: str, scored: Scored, fits: Fits) -> Figure:
        scores = np.linspace(scored.test_scores.min(), scored.test_scores.max(), 400)
        wanted = [Fit(method, "ips") for method in ("Platt", "Gaussian", "Gamma")]
        curves = {fit.method: fits[fit].predict(scores) for fit in wanted if fit in fits}
        title = f"Fitted functions, {model} on {self.protocol.dataset}, UERM"
        return fitted_functions(scores, curves, None, title)

    def _case_study(self, model: str, scored: Scored, fits: Fits) -> Figure:
        probabilities = fits[_SHOWN_FIT].predict(scored.test_scores)
        panels = {}
        for description, user in _example_users(scored, probabilities).items():
            rows = _top_rows(scored, user)
            names = [f"item {item}" for item in scored.test.items[rows]]
            scores = scored.test_scores[rows]
            panels[f"user {user}: {description}"] = (names, scores, probabilities[rows])
        title = f"Top 5 of three users, {model} on {self.protocol.dataset}, Gaussian with UERM"
        return top_lists(panels, title)

    def _estimator_names(self) -> list[str]:
        """The estimators with results; a dataset may lack what one needs."""
        tried = self.protocol.tried_negatives
        return [name for name in self.protocol.spec.estimators if tried("ips", name)]

    def _estimators(self) -> Figure:
        """Figure 5: the same number of negatives for all, and each estimator's own by the rule."""
        same: Bars = {model: {} for model in self.protocol.models}
        own: Bars = {model: {} for model in self.protocol.models}
        for name in ("popularity", *self._estimator_names()):
            best = nearest_negatives(self.protocol, "ips", name)
            for model in self.protocol.models:
                label = name.replace("_", " ")
                same[model][label] = self._bar(model, Fit("Gaussian", "ips", name))
                own[model][label] = _NO_BAR
                if best is not None:
                    fit = Fit("Gaussian", "ips", name, best.count)
                    own[model][label] = self._bar(model, fit)
        count = self.protocol.spec.negatives_for(self.protocol.dataset, "ips")
        panels = {f"{count} negatives for all": same, "each with its own number (see table)": own}
        title = f"ECE by propensity estimator, {self.protocol.dataset}, Gaussian with UERM"
        return grouped_bars(panels, title, "ECE")

    def _bar(self, model: str, fit: Fit) -> tuple[float, float]:
        spread = self.protocol.spread("ECE", fit, model)
        return _NO_BAR if spread is None else (spread.mean, spread.half)

    def _negatives(self) -> Figure:
        panels: dict[str, dict[str, Line]] = {}
        for loss, name in (("naive", "naive loss"), ("ips", "UERM")):
            for model in self.protocol.models:
                line = self._line_over_negatives(model, loss)
                if line is not None:
                    panels.setdefault(f"ECE, {name}", {})[model] = line
        title = (
            "Results depend on the number of negatives "
            f"({self.protocol.dataset}, {self.protocol.split} split, Gaussian)"
        )
        return lines_with_bands(panels, title, "negatives per positive")

    def _line_over_negatives(self, model: str, loss: str) -> Line | None:
        """Numbers of negatives, means and half intervals; None without results."""
        points = []
        for count in self.protocol.tried_negatives(loss):
            fit = Fit("Gaussian", loss, negatives=count)
            spread = self.protocol.spread("ECE", fit, model)
            # 0 means as many as represent all unobserved pairs, which has no place on the axis.
            # Where the fit of a seed failed, the mean of the others would mislead.
            if spread is not None and count and spread.seeds == self.protocol.seeds:
                points.append((float(count), spread.mean, spread.half))
        if not points:
            return None
        x, means, halves = np.array(points).T
        return x, means, np.nan_to_num(halves)


def load_scored(grid: Grid, spec: Spec) -> dict[str, Scored]:
    """The scores of seed 0 that a run saved for the first split of a spec, by model."""
    scored = {}
    for cell in grid.cells():
        if cell.split != spec.splits[0] or cell.seed != 0:
            continue
        path = grid.scores_file(cell)
        # The scores of a cell are those under the first spec that asks for it.
        if grid.specs_for(cell)[0] == spec and path.is_file():
            scored[cell.model] = Scored.load(path)
    # In the order of the spec, not of the grid.
    return {model: scored[model] for model in spec.models if model in scored}


def _fit_all(spec: Spec, dataset: str, scored: Scored) -> Fits:
    """Every row of Table 1, fitted to the scores of one seed."""
    fits = {}
    for _, fit in PUBLISHED_ROWS:
        # Methods without a loss need scores only; UERM has the most.
        found = scored.calibration.get("ips" if fit.loss == "none" else fit.loss)
        if found is not None:
            # Where a fit fails, the rows of the run hold the reason.
            with suppress(FitError):
                fits[fit] = found.fit(spec.calibrator_for(dataset, fit.method), fit.loss)
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
