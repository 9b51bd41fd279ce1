"""Figures: ink only, from numbers computed elsewhere. Needs matplotlib (`pip install 'calibrank[plots]'`)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from calibrank.arrays import Floats
from calibrank.errors import MissingExtra
from calibrank.metrics import ReliabilityCurve

try:
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
except ImportError as error:
    raise MissingExtra("matplotlib", "plots") from error

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe & Ito's palette: told apart by colour-blind readers too.
INK = {"fit": "#0072B2", "other": "#D55E00", "truth": "#009E73", "guide": "#999999"}
_CYCLE = ("#555555", INK["other"], INK["fit"], INK["truth"], "#CC79A7", "#E69F00")


def draw_reliability(axes: "Axes", curve: ReliabilityCurve, colour: str = INK["fit"], label: str | None = None) -> None:
    """One reliability curve: the area of a point is the mass behind it."""
    area = 12 + 240 * curve.total / curve.total.sum()
    axes.plot(curve.predicted, curve.observed, color=colour, linewidth=1.2, alpha=0.8)
    axes.scatter(curve.predicted, curve.observed, s=area, color=colour, alpha=0.75, linewidths=0, label=label)


def reliability_grid(panels: Mapping[str, Mapping[str, ReliabilityCurve]], title: str) -> Figure:
    """Small multiples of reliability diagrams, one panel a method, one colour a curve label."""
    labels = list(dict.fromkeys(label for curves in panels.values() for label in curves))
    colours = dict(zip(labels, _CYCLE, strict=False))
    columns = min(4, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(2.7 * columns, 2.75 * rows + 1.0), layout="constrained")
    grid = np.atleast_1d(figure.subplots(rows, columns, sharex=True, sharey=True)).ravel()
    for axes, (name, curves) in zip(grid, panels.items(), strict=False):
        _panel(axes, name, curves, colours)
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    figure.suptitle(title, fontsize=12, fontweight="bold")
    for axes in grid[max(0, len(panels) - columns) : len(panels)]:
        axes.set_xlabel("predicted probability", fontsize=9)
        axes.tick_params(labelbottom=True)
    for axes in grid[::columns]:
        axes.set_ylabel("share really liked", fontsize=9)
    handles = [Line2D([], [], color=colour, marker="o", label=label) for label, colour in colours.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(labels), frameon=False)
    return figure


def fitted_functions(scores: Floats, curves: Mapping[str, Floats], truth: Floats, title: str) -> Figure:
    """Fitted probabilities over the raw score, against the true curve."""
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.subplots()
    axes.plot(scores, truth, color="black", linewidth=4, alpha=0.25, label="truth")
    styles = ["-", "--", "-.", ":"]
    for index, (name, values) in enumerate(curves.items()):
        colour = _CYCLE[1 + index % 5]
        axes.plot(scores, values, styles[index % 4], color=colour, linewidth=1.6, label=name)
    axes.set(xlabel="ranking score", ylabel="probability of preference", title=title)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _panel(axes: "Axes", name: str, curves: Mapping[str, ReliabilityCurve], colours: Mapping[str, str]) -> None:
    axes.plot([0, 1], [0, 1], color=INK["guide"], linestyle="--", linewidth=1)
    for label, curve in curves.items():
        draw_reliability(axes, curve, colours[label], label)
    axes.set_title(name, fontsize=10)
    axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal", xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
    axes.spines[["top", "right"]].set_visible(False)
