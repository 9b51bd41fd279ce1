"""Matplotlib figures drawn from numbers that are computed elsewhere.

Needs matplotlib: `pip install 'calibrank[plots]'`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from calibrank._internal.arguments import instance, shown
from calibrank._internal.validation import Floats, column, require_scores
from calibrank.errors import DataError, MissingExtraError
from calibrank.metrics import ReliabilityCurve

try:
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
except ImportError as error:
    raise MissingExtraError("matplotlib", "plots") from error

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    AxesGrid = npt.NDArray[Any]
    # {group: {bar: (value, half-width of interval)}}
    BarGroups = Mapping[str, Mapping[str, tuple[float, float]]]

# The palette of Okabe and Ito, which colour-blind readers can tell apart.
INK = {"fit": "#0072B2", "other": "#D55E00", "truth": "#009E73", "guide": "#999999"}
_CYCLE = ("#555555", INK["other"], INK["fit"], INK["truth"], "#CC79A7", "#E69F00")
_LONG_CYCLE = (*_CYCLE, "#56B4E9", "#000000")
_LINE_STYLES = ("-", "--", "-.", ":")

_MAXIMUM_COLUMNS = 5

Inner = TypeVar("Inner")

# The part of the distance between two groups of bars that the bars cover.
_GROUP_WIDTH = 0.84
# Labels that fit on the axis of a panel.
_MOST_TICKS = 16


def draw_reliability(
    axes: Axes, curve: ReliabilityCurve, colour: str = INK["fit"], label: str | None = None
) -> None:
    """Draw one reliability curve; the area of a point is proportional to its mass."""
    # Points of tiny bins stay visible, and one point with all the mass does not cover the panel.
    area = 12 + 240 * curve.total / curve.total.sum()
    axes.plot(curve.predicted, curve.observed, color=colour, linewidth=1.2, alpha=0.8)
    axes.scatter(
        curve.predicted, curve.observed, s=area, color=colour, alpha=0.75, linewidths=0, label=label
    )


def reliability_grid(panels: Mapping[str, Mapping[str, ReliabilityCurve]], title: str) -> Figure:
    """Draw reliability diagrams side by side: one panel per method, one colour per curve."""
    _require_title(title)
    for name, curves in _checked("panels", panels).items():
        for label, curve in _checked(f"panels[{name!r}]", curves).items():
            instance(f"the curve {label!r}", curve, ReliabilityCurve, "Use reliability(...).")
    labels = _inner_names(panels)
    colours = dict(zip(labels, _CYCLE, strict=False))
    figure, grid, columns = _panel_grid(len(panels), width=2.7, height=2.75, margin=1.0)
    for axes, (name, curves) in zip(grid, panels.items(), strict=False):
        _draw_reliability_panel(axes, name, curves, colours)
    figure.suptitle(title, fontsize=12, fontweight="bold")
    for axes in _lowest_panels(grid, len(panels), columns):
        axes.set_xlabel("predicted probability", fontsize=9)
        axes.tick_params(labelbottom=True)
    for axes in grid[::columns]:
        axes.set_ylabel("observed rate", fontsize=9)
    handles = [
        Line2D([], [], color=colour, marker="o", label=label) for label, colour in colours.items()
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(labels), frameon=False)
    return figure


def fitted_functions(
    scores: Floats, curves: Mapping[str, Floats], truth: Floats | None, title: str
) -> Figure:
    """Draw fitted probabilities over the raw score, with the true curve where it is known."""
    _require_title(title)
    scores = column("scores", scores)
    curves = {
        name: column(f"the curve {name!r}", values, len(scores))
        for name, values in _checked("curves", curves).items()
    }
    truth = None if truth is None else column("truth", truth, len(scores))
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.subplots()
    if truth is not None:
        axes.plot(scores, truth, color="black", linewidth=4, alpha=0.25, label="truth")
    for index, (name, values) in enumerate(curves.items()):
        colour = _CYCLE[1 + index % 5]
        style = _LINE_STYLES[index % len(_LINE_STYLES)]
        axes.plot(scores, values, style, color=colour, linewidth=1.6, label=name)
    axes.set(xlabel="ranking score", ylabel="probability of preference", title=title)
    axes.legend(frameon=False)
    _hide_spines(axes)
    return figure


def bars_of_gaps(panels: Mapping[str, tuple[Floats, Floats]], title: str, ylabel: str) -> Figure:
    """Draw binned diagrams as in the paper: observed rates as bars, predictions as lines.

    Each panel holds the observed rate and the mean prediction of each bin, NaN where it is empty.
    """
    _require_title(title)
    panels = {name: _columns(name, pair, 2) for name, pair in _checked("panels", panels).items()}
    figure, grid, columns = _panel_grid(len(panels), width=2.6, height=2.1, margin=0.9)
    for axes, (name, (observed, predicted)) in zip(grid, panels.items(), strict=False):
        centres = (np.arange(len(observed)) + 0.5) / len(observed)
        axes.bar(centres, observed, width=0.9 / len(observed), color=INK["fit"], alpha=0.75)
        axes.hlines(predicted, centres - 0.05, centres + 0.05, color=INK["other"], linewidth=2)
        axes.set_title(name, fontsize=9)
        axes.set(xlim=(0, 1), ylim=(0, 1.02), xticks=[0, 0.5, 1])
        _hide_spines(axes)
    for axes in _lowest_panels(grid, len(panels), columns):
        axes.tick_params(labelbottom=True)
    figure.suptitle(title, fontsize=11, fontweight="bold")
    figure.supxlabel("predicted probability, ten bins", fontsize=9)
    figure.supylabel(ylabel, fontsize=9)
    observed_key = Line2D([], [], color=INK["fit"], linewidth=6, alpha=0.75, label="observed")
    predicted_key = Line2D([], [], color=INK["other"], linewidth=2, label="predicted")
    figure.legend(
        handles=[observed_key, predicted_key],
        loc="outside lower right",
        ncols=2,
        frameon=False,
        fontsize=8,
    )
    return figure


def score_distributions(panels: Mapping[str, tuple[Floats, Floats]], title: str) -> Figure:
    """Draw histograms of the scores of negatives and of positives; each panel holds both."""
    _require_title(title)
    panels = {name: _columns(name, pair, 2) for name, pair in _checked("panels", panels).items()}
    for negative, positive in panels.values():
        require_scores(negative)
        require_scores(positive)
    figure = Figure(figsize=(2.7 * len(panels), 2.9), layout="constrained")
    grid = np.atleast_1d(figure.subplots(1, len(panels)))
    for axes, (name, (negative, positive)) in zip(grid, panels.items(), strict=True):
        # Both classes share their bins, so that the histograms can be compared.
        edges = np.histogram_bin_edges(np.concatenate([negative, positive]), 40)
        axes.hist(negative, edges, density=True, color=INK["other"], alpha=0.5, label="not liked")
        axes.hist(positive, edges, density=True, color=INK["fit"], alpha=0.5, label="liked")
        axes.set_title(name, fontsize=10)
        axes.set(xlabel="ranking score", yticks=[])
        axes.spines[["top", "right", "left"]].set_visible(False)
    figure.axes[0].set_ylabel("density")
    figure.axes[0].legend(frameon=False, fontsize=8)
    figure.suptitle(title, fontsize=11, fontweight="bold")
    return figure


def top_lists(users: Mapping[str, tuple[Sequence[str], Floats, Floats]], title: str) -> Figure:
    """Draw the best items of some users: names, scores and probabilities, best first."""
    _require_title(title)
    _checked("users", users)
    figure = Figure(figsize=(3.1 * len(users), 2.9), layout="constrained")
    grid = np.atleast_1d(figure.subplots(1, len(users), sharex=True))
    for axes, (name, (items, scores, probabilities)) in zip(grid, users.items(), strict=True):
        positions = np.arange(len(items))[::-1]
        axes.barh(positions, probabilities, color=INK["fit"], alpha=0.75)
        for position, score, probability in zip(positions, scores, probabilities, strict=True):
            text = f"{probability:.0%}  (s = {score:.2f})"
            axes.text(probability + 0.02, position, text, va="center", fontsize=8)
        axes.set_yticks(positions, items, fontsize=8)
        axes.set(xlim=(0, 1.25), xticks=[0, 0.5, 1], title=name, xlabel="probability of preference")
        axes.title.set_fontsize(9)
        _hide_spines(axes)
    figure.suptitle(title, fontsize=11, fontweight="bold")
    return figure


def grouped_bars(panels: Mapping[str, BarGroups], title: str, ylabel: str) -> Figure:
    """Draw panels of groups of bars with error bars; a value that is NaN is not drawn."""
    _require_title(title)
    for name, groups in _checked("panels", panels).items():
        _checked(f"panels[{name!r}]", groups)
    widest = max(len(groups) for groups in panels.values())
    figure = Figure(figsize=(1.6 * widest + 1.5, 2.7 * len(panels) + 0.6), layout="constrained")
    grid = np.atleast_1d(figure.subplots(len(panels), 1))
    for axes, (name, groups) in zip(grid, panels.items(), strict=True):
        _draw_groups(axes, groups)
        axes.set_title(name, fontsize=9)
        axes.set(ylabel=ylabel)
        _hide_spines(axes)
    figure.suptitle(title, fontsize=11, fontweight="bold")
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", frameon=False, fontsize=8, ncols=len(labels)
    )
    return figure


def _draw_groups(axes: Axes, groups: BarGroups) -> None:
    labels = _inner_names(groups)
    width = _GROUP_WIDTH / len(labels)
    for number, label in enumerate(labels):
        offset = width * (number + 0.5) - _GROUP_WIDTH / 2
        colour = _LONG_CYCLE[number % len(_LONG_CYCLE)]
        _draw_bars(axes, groups, label, offset, width * 0.95, colour)
    axes.set_xticks(range(len(groups)), list(groups))


def lines_with_bands(
    panels: Mapping[str, Mapping[str, tuple[Floats, Floats, Floats]]], title: str, xlabel: str
) -> Figure:
    """Draw lines of (x, y, half-width), one panel per metric and one colour per line."""
    _require_title(title)
    for name, lines in _checked("panels", panels).items():
        _checked(f"panels[{name!r}]", lines)
    figure = Figure(figsize=(4.2 * len(panels), 3.3), layout="constrained")
    grid = np.atleast_1d(figure.subplots(1, len(panels)))
    for axes, (name, lines) in zip(grid, panels.items(), strict=True):
        for number, (label, (x, y, half)) in enumerate(lines.items()):
            colour = _CYCLE[number % len(_CYCLE)]
            axes.plot(x, y, "o-", color=colour, markersize=3, linewidth=1.4, label=label)
            axes.fill_between(x, y - half, y + half, color=colour, alpha=0.15, linewidth=0)
        axes.set(xscale="log", xlabel=xlabel, ylabel=name)
        ticks = _readable_ticks(np.unique(np.concatenate([x for x, _, _ in lines.values()])))
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks], fontsize=7)
        axes.minorticks_off()
        _hide_spines(axes)
    grid[0].legend(frameon=False, fontsize=8)
    figure.suptitle(title, fontsize=11, fontweight="bold")
    return figure


def _checked(name: str, values: Mapping[str, Inner]) -> Mapping[str, Inner]:
    """A mapping of names to what is drawn, with at least one."""
    if not isinstance(values, Mapping) or not values:
        found = "an empty one" if isinstance(values, Mapping) else shown(values)
        raise DataError(name, "be a dict of names to what is drawn", got=found)
    for key in values:
        instance(f"a name in {name}", key, str)
    return values


def _columns(name: str, values: Any, number: int) -> Any:
    """A panel's arrays: so many of them, each of one dimension."""
    if not isinstance(values, tuple | list) or len(values) != number:
        raise DataError(f"panel {name!r}", f"be {number} arrays", got=shown(values))
    return tuple([column(f"panel {name!r}", array) for array in values])


def _require_title(title: str) -> None:
    instance("title", title, str)


def _readable_ticks(values: Floats) -> list[float]:
    """The values that can be labelled on a logarithmic axis without overlap."""
    ticks = [float(values[0])]
    least_ratio = (values[-1] / values[0]) ** (1 / _MOST_TICKS)
    for value in values[1:].tolist():
        if value >= ticks[-1] * least_ratio:
            ticks.append(value)
    return ticks


def _inner_names(groups: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the distinct inner keys of a nested mapping, in order of appearance."""
    names: dict[str, None] = {}
    for inner in groups.values():
        names.update(dict.fromkeys(inner))
    return list(names)


def _panel_grid(
    panels: int, *, width: float, height: float, margin: float
) -> tuple[Figure, AxesGrid, int]:
    """Return a figure, its axes in reading order and the number of columns; spare axes are off."""
    columns = min(_MAXIMUM_COLUMNS, panels)
    rows = -(-panels // columns)
    figure = Figure(figsize=(width * columns, height * rows + margin), layout="constrained")
    grid = np.atleast_1d(figure.subplots(rows, columns, sharex=True, sharey=True)).ravel()
    for axes in grid[panels:]:
        axes.set_axis_off()
    return figure, grid, columns


def _lowest_panels(grid: AxesGrid, panels: int, columns: int) -> AxesGrid:
    """Return the lowest panel of each column, which carries the labels of the x axis."""
    return grid[max(0, panels - columns) : panels]


def _draw_bars(
    axes: Axes, groups: BarGroups, label: str, offset: float, width: float, colour: str
) -> None:
    """Draw the bars of one label in all groups that have it."""
    positions = []
    values = []
    errors = []
    for group, bars in enumerate(groups.values()):
        if label in bars:
            value, half = bars[label]
            positions.append(group + offset)
            values.append(value)
            # An error bar of a metric that is never negative must not reach below 0.
            errors.append((min(half, value), half))
    axes.bar(
        positions,
        values,
        width,
        yerr=np.array(errors).T,
        color=colour,
        label=label,
        error_kw={"linewidth": 0.8},
    )


def _draw_reliability_panel(
    axes: Axes, name: str, curves: Mapping[str, ReliabilityCurve], colours: Mapping[str, str]
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
    _hide_spines(axes)


def _hide_spines(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
