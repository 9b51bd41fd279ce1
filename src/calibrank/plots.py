"""Figures: ink only, from numbers computed elsewhere. Needs matplotlib (`pip install 'calibrank[plots]'`)."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from calibrank._validation import Floats
from calibrank.errors import MissingExtraError
from calibrank.metrics import ReliabilityCurve

try:
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
except ImportError as error:
    raise MissingExtraError("matplotlib", "plots") from error

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe & Ito's palette: told apart by colour-blind readers too.
INK = {"fit": "#0072B2", "other": "#D55E00", "truth": "#009E73", "guide": "#999999"}
_CYCLE = ("#555555", INK["other"], INK["fit"], INK["truth"], "#CC79A7", "#E69F00")


def draw_reliability(
    axes: "Axes", curve: ReliabilityCurve, colour: str = INK["fit"], label: str | None = None
) -> None:
    """One reliability curve: the area of a point is the mass behind it."""
    area = 12 + 240 * curve.total / curve.total.sum()
    axes.plot(curve.predicted, curve.observed, color=colour, linewidth=1.2, alpha=0.8)
    axes.scatter(
        curve.predicted, curve.observed, s=area, color=colour, alpha=0.75, linewidths=0, label=label
    )


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
    handles = [
        Line2D([], [], color=colour, marker="o", label=label) for label, colour in colours.items()
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(labels), frameon=False)
    return figure


def fitted_functions(
    scores: Floats, curves: Mapping[str, Floats], truth: Floats | None, title: str
) -> Figure:
    """Fitted probabilities over the raw score, against the true curve where it is known."""
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.subplots()
    if truth is not None:
        axes.plot(scores, truth, color="black", linewidth=4, alpha=0.25, label="truth")
    styles = ["-", "--", "-.", ":"]
    for index, (name, values) in enumerate(curves.items()):
        colour = _CYCLE[1 + index % 5]
        axes.plot(scores, values, styles[index % 4], color=colour, linewidth=1.6, label=name)
    axes.set(xlabel="ranking score", ylabel="probability of preference", title=title)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def bars_of_gaps(panels: Mapping[str, tuple[Floats, Floats]], title: str, ylabel: str) -> Figure:
    """Ten-bin diagrams as the paper draws them: what happened as a bar, what was promised as a line over it.

    Each panel holds one number a bin for both, NaN where the bin is empty.
    """
    columns = min(4, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(2.6 * columns, 2.1 * rows + 0.9), layout="constrained")
    grid = np.atleast_1d(figure.subplots(rows, columns, sharex=True, sharey=True)).ravel()
    for axes, (name, (happened, promised)) in zip(grid, panels.items(), strict=False):
        places = (np.arange(len(happened)) + 0.5) / len(happened)
        axes.bar(places, happened, width=0.9 / len(happened), color=INK["fit"], alpha=0.75)
        axes.hlines(promised, places - 0.05, places + 0.05, color=INK["other"], linewidth=2)
        axes.set_title(name, fontsize=9)
        axes.set(xlim=(0, 1), ylim=(0, 1.02), xticks=[0, 0.5, 1])
        axes.spines[["top", "right"]].set_visible(False)
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    for axes in grid[max(0, len(panels) - columns) : len(panels)]:
        axes.tick_params(labelbottom=True)
    figure.suptitle(title, fontsize=11, fontweight="bold")
    figure.supxlabel("predicted probability, ten bins", fontsize=9)
    figure.supylabel(ylabel, fontsize=9)
    handles = [Line2D([], [], color=INK["fit"], linewidth=6, alpha=0.75, label="happened")]
    handles.append(Line2D([], [], color=INK["other"], linewidth=2, label="promised"))
    figure.legend(handles=handles, loc="outside lower right", ncols=2, frameon=False, fontsize=8)
    return figure


def score_distributions(panels: Mapping[str, tuple[Floats, Floats]], title: str) -> Figure:
    """How scores of disliked and of liked pairs are spread; each panel holds both."""
    figure = Figure(figsize=(2.7 * len(panels), 2.9), layout="constrained")
    for axes, (name, (disliked, liked)) in zip(
        np.atleast_1d(figure.subplots(1, len(panels))), panels.items(), strict=True
    ):
        edges = np.histogram_bin_edges(np.concatenate([disliked, liked]), 40)
        for scores, colour, label in (
            (disliked, INK["other"], "not liked"),
            (liked, INK["fit"], "liked"),
        ):
            axes.hist(scores, edges, density=True, color=colour, alpha=0.5, label=label)
        axes.set_title(name, fontsize=10)
        axes.set(xlabel="ranking score", yticks=[])
        axes.spines[["top", "right", "left"]].set_visible(False)
    figure.axes[0].set_ylabel("density")
    figure.axes[0].legend(frameon=False, fontsize=8)
    figure.suptitle(title, fontsize=11, fontweight="bold")
    return figure


def top_lists(people: Mapping[str, tuple[Sequence[str], Floats, Floats]], title: str) -> Figure:
    """Some users' best items: names, scores and probabilities, best first."""
    figure = Figure(figsize=(3.1 * len(people), 2.9), layout="constrained")
    grid = np.atleast_1d(figure.subplots(1, len(people), sharex=True))
    for axes, (name, (items, scores, probabilities)) in zip(grid, people.items(), strict=True):
        places = np.arange(len(items))[::-1]
        axes.barh(places, probabilities, color=INK["fit"], alpha=0.75)
        for place, score, probability in zip(places, scores, probabilities, strict=True):
            axes.text(
                probability + 0.02,
                place,
                f"{probability:.0%}  (s = {score:.2f})",
                va="center",
                fontsize=8,
            )
        axes.set_yticks(places, items, fontsize=8)
        axes.set(xlim=(0, 1.25), xticks=[0, 0.5, 1], title=name, xlabel="probability of preference")
        axes.title.set_fontsize(9)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title, fontsize=11, fontweight="bold")
    return figure


def grouped_bars(
    groups: Mapping[str, Mapping[str, tuple[float, float]]], title: str, ylabel: str
) -> Figure:
    """Bars with half-widths of intervals, a group a cluster: {group: {bar: (value, half)}}."""
    labels = list(dict.fromkeys(label for bars in groups.values() for label in bars))
    figure = Figure(figsize=(1.6 * len(groups) + 1.5, 3.3), layout="constrained")
    axes = figure.subplots()
    width = 0.84 / len(labels)
    colours = (*_CYCLE, "#56B4E9", "#000000")
    for number, label in enumerate(labels):
        present = [
            (place, bars[label]) for place, bars in enumerate(groups.values()) if label in bars
        ]
        places = [place - 0.42 + width * (number + 0.5) for place, _ in present]
        axes.bar(
            places,
            [value for _, (value, _) in present],
            width * 0.95,
            yerr=np.array([(min(half, value), half) for _, (value, half) in present]).T,
            color=colours[number % len(colours)],
            label=label,
            error_kw={"linewidth": 0.8},
        )
    axes.set_xticks(range(len(groups)), list(groups))
    axes.set(ylabel=ylabel)
    axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title, fontsize=11, fontweight="bold")
    figure.legend(loc="outside lower center", frameon=False, fontsize=8, ncols=len(labels))
    return figure


def lines_with_bands(
    panels: Mapping[str, Mapping[str, tuple[Floats, Floats, Floats]]], title: str, xlabel: str
) -> Figure:
    """Lines of (x, y, half-width), one panel a measure, one colour a line."""
    figure = Figure(figsize=(4.2 * len(panels), 3.3), layout="constrained")
    grid = np.atleast_1d(figure.subplots(1, len(panels)))
    for axes, (name, lines) in zip(grid, panels.items(), strict=True):
        for number, (label, (x, y, half)) in enumerate(lines.items()):
            colour = _CYCLE[number % len(_CYCLE)]
            axes.plot(x, y, "o-", color=colour, markersize=3, linewidth=1.4, label=label)
            axes.fill_between(x, y - half, y + half, color=colour, alpha=0.15, linewidth=0)
        axes.set(xscale="log", xlabel=xlabel, ylabel=name)
        ticks = sorted({float(value) for x, _, _ in lines.values() for value in x})
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks], fontsize=7)
        axes.minorticks_off()
        axes.spines[["top", "right"]].set_visible(False)
    grid[0].legend(frameon=False, fontsize=8)
    figure.suptitle(title, fontsize=11, fontweight="bold")
    return figure


def _panel(
    axes: "Axes", name: str, curves: Mapping[str, ReliabilityCurve], colours: Mapping[str, str]
) -> None:
    axes.plot([0, 1], [0, 1], color=INK["guide"], linestyle="--", linewidth=1)
    for label, curve in curves.items():
        draw_reliability(axes, curve, colours[label], label)
    axes.set_title(name, fontsize=10)
    axes.set(
        xlim=(-0.03, 1.03),
        ylim=(-0.03, 1.03),
        aspect="equal",
        xticks=[0, 0.5, 1],
        yticks=[0, 0.5, 1],
    )
    axes.spines[["top", "right"]].set_visible(False)
