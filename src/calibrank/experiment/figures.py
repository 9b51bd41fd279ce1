"""The paper's figures of reliability, fitted functions and propensities, and one of negatives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
from matplotlib.figure import Figure

from calibrank._internal.atomic import atomic_path
from calibrank.experiment.published import PUBLISHED_ROWS
from calibrank.experiment.results import Fit, Protocol
from calibrank.experiment.runner import Grid, read_intact
from calibrank.experiment.spec import Spec
from calibrank.metrics import ReliabilityCurve, reliability
from calibrank.plots import fitted_functions, reliability_grid

_SHOWN = "LightGCN"
"""The model of Figures 1 and 3, if it was run."""
_LOSS_NAMES = {"none": "uncalibrated", "naive": "naive loss", "ips": "UERM"}

Points = dict[str, list[tuple[float | str, float, float]]]
"""Places on the axis, means and half intervals, by line."""


def save_figures(protocol: Protocol, predictions: Mapping[str, pa.Table], folder: Path) -> None:
    """Write every figure of a protocol as PNG; `predictions`, by model, are of seed 0."""
    for name, figure in _figures(protocol, predictions):
        if figure is None:  # no method or loss of the paper's figure
            continue
        with atomic_path(folder / f"{name}.png") as partial:
            figure.savefig(partial, dpi=150, format="png")


def load_predictions(grid: Grid, spec: Spec) -> dict[str, pa.Table]:
    """The predictions of seed 0 that a run saved for the first split of a spec, by model."""
    found: dict[str, pa.Table] = {}
    for cell in grid.cells():
        # The predictions of a cell are those under the first spec that asks for it.
        is_wanted = cell.split == spec.splits[0] and grid.specs_for(cell)[0] == spec
        if cell.seed == 0 and is_wanted:
            table = read_intact(grid.predictions_file(cell))
            found |= {} if table is None else {cell.model: table}
    return found


def _figures(
    protocol: Protocol, predictions: Mapping[str, pa.Table]
) -> Iterator[tuple[str, Figure | None]]:
    if predictions:
        model = _SHOWN if _SHOWN in predictions else next(iter(predictions))
        yield "figure1", _reliability(predictions[model], f"{model} on {protocol.dataset}")
        yield "figure3", _functions(predictions[model], f"{model} on {protocol.dataset}")
    estimators = [
        name for name in protocol.spec.estimators if protocol.tried_negatives("ips", name)
    ]
    if estimators:
        yield "figure5", _estimators(protocol, ["popularity", *estimators])
    if protocol.spec.sweep:
        yield "negatives", _negatives(protocol)


def _reliability(predictions: pa.Table, where: str) -> Figure | None:
    """Figure 1, in the usual convention: a panel per method, a colour per loss."""
    panels: dict[str, dict[str, ReliabilityCurve]] = {}
    labels = predictions["label"].to_numpy()
    for _, fit in PUBLISHED_ROWS:
        name = f"{fit.method} {fit.loss}"
        # Where a fit failed, the rows of the run hold the reason.
        if name in predictions.column_names:
            curve = reliability(predictions[name].to_numpy(), labels)
            panels.setdefault(fit.method, {})[_LOSS_NAMES[fit.loss]] = curve
    return reliability_grid(panels, f"Reliability of {where}") if panels else None


def _functions(predictions: pa.Table, where: str) -> Figure | None:
    """Figure 3: fitted functions of the score."""
    ordered = predictions.sort_by("score")
    names = [f"{method} ips" for method in ("Platt", "Gaussian", "Gamma")]
    curves = {
        name.removesuffix(" ips"): ordered[name].to_numpy()
        for name in names
        if name in ordered.column_names
    }
    if not curves:
        return None
    title = f"Fitted functions, {where}, UERM"
    return fitted_functions(ordered["score"].to_numpy(), curves, title)


def _estimators(protocol: Protocol, names: list[str]) -> Figure:
    """Figure 5: the same number of negatives for all, and each estimator's own by the rule."""
    same: Points = {}
    own: Points = {}
    for name in names:
        best = protocol.nearest_negatives("ips", name)
        place = name.replace("_", " ")
        fit = Fit("Gaussian", "ips", name)
        _add_points(protocol, same, place, fit)
        if best is not None:
            _add_points(protocol, own, place, fit._replace(negatives=best.count))
    count = protocol.spec.negatives_for(protocol.dataset, "ips")
    panels = {f"{count} negatives for all": same, "each with its own number (see table)": own}
    title = f"ECE by propensity estimator, {protocol.dataset}, Gaussian with UERM"
    return _draw_points(panels, title, "propensity estimator")


def _negatives(protocol: Protocol) -> Figure:
    panels: dict[str, Points] = {}
    for loss in ("naive", "ips"):
        points: Points = {}
        # 0 means as many as represent all unobserved pairs, which has no place on the axis.
        for count in filter(None, protocol.tried_negatives(loss)):
            _add_points(protocol, points, float(count), Fit("Gaussian", loss, negatives=count))
        panels[f"ECE, {_LOSS_NAMES[loss]}"] = points
    title = (
        "Results depend on the number of negatives "
        f"({protocol.dataset}, {protocol.split} split, Gaussian)"
    )
    return _draw_points(panels, title, "negatives per positive")


def _add_points(protocol: Protocol, points: Points, place: float | str, fit: Fit) -> None:
    for model in protocol.models:
        spread = protocol.spread("ECE", fit, model)
        # Where the fit of a seed failed, the mean of the others would mislead.
        if spread is not None and spread.seeds == protocol.seeds:
            half = float(np.nan_to_num(spread.half))
            points.setdefault(model, []).append((place, spread.mean, half))


def _draw_points(panels: Mapping[str, Points], title: str, xlabel: str) -> Figure:
    """Lines with error bars: a panel per name, a colour per model."""
    figure = Figure(figsize=(5.5 * len(panels), 3.6), layout="constrained")
    figure.suptitle(title, fontsize=11)
    grid = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (name, points) in zip(grid, panels.items(), strict=True):
        axes.set_title(name, fontsize=10)
        axes.set_xlabel(xlabel)
        for model, line in points.items():
            places, means, halves = zip(*line, strict=True)
            axes.errorbar(places, means, halves, fmt="o-", markersize=3, capsize=2, label=model)
            if not isinstance(places[0], str):
                axes.set_xscale("log")
    grid[0].legend(frameon=False, fontsize=8)
    return figure
