"""Matplotlib figures drawn from numbers that are computed elsewhere.

Needs matplotlib: `pip install 'calibrank[plots]'`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

from calibrank._internal.arguments import instance, shown
from calibrank._internal.validation import Floats, Numbers, column, require_scores
from calibrank.errors import DataError, MissingExtraError
from calibrank.maps import CalibrationMap
from calibrank.metrics import ReliabilityCurve

try:
    from matplotlib.figure import Figure
except ImportError as error:
    raise MissingExtraError("matplotlib", "plots") from error

# The palette of Okabe and Ito, which colour-blind readers can tell apart.
_COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#555555")
_LINE_STYLES = ("-", "--", "-.", ":")
_PANELS_PER_ROW = 5
_POINTS = 400

Inner = TypeVar("Inner")


def plot_map(fitted: CalibrationMap, scores: Numbers | None = None) -> Figure:
    """Draw a map over the score, with its 95% interval; of a map with terms, the average map.

    The axis is the range of the map, or that of the given scores.

    >>> from calibrank import Platt
    >>> plot_map(Platt().fit([-1.0, 0.0, 1.0, 2.0], [0, 1, 0, 1])).axes[0].get_title()
    'Platt'
    """
    instance("fitted", fitted, CalibrationMap, "Read one with calibrank.load.")
    average = fitted.without_terms()
    low, high = fitted.curve.span
    if scores is not None:
        low, high = require_scores(column("scores", scores))
    grid = np.linspace(low, high, _POINTS)
    title = f"{fitted.method} (the average over its terms)" if fitted.terms else fitted.method
    figure = fitted_functions(grid, {"probability": average.predict(grid)}, title)
    axes = figure.axes[0]
    style: dict[str, Any] = {"color": _COLOURS[0], "alpha": 0.15, "linewidth": 0}
    style["label"] = fitted.record.interval_name
    axes.fill_between(grid, *average.sampling_interval(grid), **style)
    axes.legend(frameon=False)
    return figure


def reliability_grid(panels: Mapping[str, Mapping[str, ReliabilityCurve]], title: str) -> Figure:
    """Draw reliability diagrams side by side: one panel per method, one colour per curve.

    The area of a point is proportional to its mass.
    """
    instance("title", title, str)
    labels: dict[str, None] = {}
    for name, curves in _checked("panels", panels).items():
        for label, curve in _checked(f"panels[{name!r}]", curves).items():
            instance(f"the curve {label!r}", curve, ReliabilityCurve, "Use reliability(...).")
            labels[label] = None
    colours = {label: _COLOURS[place % len(_COLOURS)] for place, label in enumerate(labels)}
    columns = min(_PANELS_PER_ROW, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(2.7 * columns, 2.75 * rows + 1), layout="constrained")
    figure.suptitle(title, fontsize=11, fontweight="bold")
    for place, (name, curves) in enumerate(panels.items(), start=1):
        axes = figure.add_subplot(rows, columns, place, aspect="equal")
        axes.set_title(name, fontsize=9)
        axes.plot([0, 1], [0, 1], color="#999999", linestyle="--", linewidth=1)
        for label, curve in curves.items():
            # Points of tiny bins stay visible, and one with all the mass does not cover the panel.
            area = 12 + 240 * curve.total / curve.total.sum()
            style: dict[str, Any] = {"color": colours[label], "alpha": 0.75}
            axes.plot(curve.predicted, curve.observed, linewidth=1.2, **style)
            axes.scatter(curve.predicted, curve.observed, area, linewidths=0, **style)
        limits, ticks = (-0.03, 1.03), [0, 0.5, 1]
        axes.set(xlim=limits, ylim=limits, xticks=ticks, yticks=ticks)
        axes.spines[["top", "right"]].set_visible(False)
    figure.supxlabel("predicted probability", fontsize=9)
    figure.supylabel("observed rate", fontsize=9)
    handles = [axes.scatter([], [], color=colour, label=name) for name, colour in colours.items()]
    figure.legend(handles=handles, loc="outside lower right", ncols=len(handles), frameon=False)
    return figure


def fitted_functions(scores: Floats, curves: Mapping[str, Floats], title: str) -> Figure:
    """Draw fitted probabilities over the raw score."""
    scores = column("scores", scores)
    instance("title", title, str)
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.subplots()
    for place, (name, given) in enumerate(_checked("curves", curves).items()):
        values = column(f"the curve {name!r}", given, len(scores))
        colour = _COLOURS[place % len(_COLOURS)]
        style = _LINE_STYLES[place % len(_LINE_STYLES)]
        axes.plot(scores, values, style, color=colour, linewidth=1.6, label=name)
    axes.set(xlabel="ranking score", ylabel="probability of preference", title=title)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _checked(name: str, values: Mapping[str, Inner]) -> Mapping[str, Inner]:
    """A mapping of names to what is drawn, with at least one."""
    if not isinstance(values, Mapping) or not values:
        found = "an empty one" if isinstance(values, Mapping) else shown(values)
        raise DataError(name, "be a dict of names to what is drawn", found)
    for key in values:
        instance(f"a name in {name}", key, str)
    return values
