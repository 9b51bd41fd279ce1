"""Matplotlib figures drawn from numbers that are computed elsewhere.

Needs matplotlib: `pip install 'calibrank[plots]'`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from calibrank._internal.arguments import instance, shown
from calibrank._internal.validation import Floats, Numbers, column, require_scores
from calibrank.errors import DataError, MissingExtraError
from calibrank.maps import CalibrationMap
from calibrank.metrics import ReliabilityCurve

try:
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
except ImportError as error:
    raise MissingExtraError("matplotlib", "plots") from error

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    # {group: {bar: (value, half-width of interval)}}
    BarGroups = Mapping[str, Mapping[str, tuple[float, float]]]

# The palette of Okabe and Ito, which colour-blind readers can tell apart.
INK = {"fit": "#0072B2", "other": "#D55E00", "truth": "#009E73", "guide": "#999999"}
_CYCLE = ("#555555", INK["other"], INK["fit"], INK["truth"], "#CC79A7", "#E69F00")
_LONG_CYCLE = (*_CYCLE, "#56B4E9", "#000000")
_LINE_STYLES = ("-", "--", "-.", ":")

Inner = TypeVar("Inner")

# The part of the distance between two groups of bars that the bars cover.
_GROUP_WIDTH = 0.84
# Labels that fit on the axis of a panel.
_MOST_TICKS = 16
_POINTS = 400


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


def plot_map(fitted: CalibrationMap, scores: Numbers | None = None) -> Figure:
    """Draw a map over the score, with its 95% interval; of a map with terms, the average map.

    The axis is the range of the map, or that of the given scores.

    >>> from calibrank import Platt
    >>> plot_map(Platt().fit([-1.0, 0.0, 1.0, 2.0], [0, 1, 0, 1])).axes[0].get_title()
    'Platt'
    """
    instance("fitted", fitted, CalibrationMap, "Read one with calibrank.load.")
    average = fitted.without_terms()
    low, high = fitted.span
    if scores is not None:
        given = column("scores", scores)
        require_scores(given)
        low, high = float(given.min()), float(given.max())
    grid = np.linspace(low, high, _POINTS)
    band = average.sampling_interval(grid)
    title = f"{fitted.method} (the average over its terms)" if fitted.terms else fitted.method
    figure = fitted_functions(grid, {"probability": average.predict(grid)}, None, title)
    axes = figure.axes[0]
    style: dict[str, Any] = {
        "color": INK["other"],
        "alpha": 0.15,
        "linewidth": 0,
        "label": "95% interval",
    }
    axes.fill_between(grid, band.low, band.high, **style)
    axes.legend(frameon=False)
    return figure


def reliability_grid(panels: Mapping[str, Mapping[str, ReliabilityCurve]], title: str) -> Figure:
    """Draw reliability diagrams side by side: one panel per method, one colour per curve."""
    for name, curves in _checked("panels", panels).items():
        for label, curve in _checked(f"panels[{name!r}]", curves).items():
            instance(f"the curve {label!r}", curve, ReliabilityCurve, "Use reliability(...).")
    labels = _inner_names(panels)
    colours = dict(zip(labels, _CYCLE, strict=False))
    figure, grid = _panels(panels, title, 2.7, 2.75, margin=1.0, sharex=True, sharey=True)
    limits = (-0.03, 1.03)
    ticks = [0, 0.5, 1]
    for axes, curves in zip(grid, panels.values(), strict=True):
        axes.plot([0, 1], [0, 1], color=INK["guide"], linestyle="--", linewidth=1)
        for label, curve in curves.items():
            draw_reliability(axes, curve, colours[label], label)
        axes.set(aspect="equal", xlim=limits, ylim=limits, xticks=ticks, yticks=ticks)
    figure.supxlabel("predicted probability", fontsize=9)
    figure.supylabel("observed rate", fontsize=9)
    handles = [
        Line2D([], [], color=colour, marker="o", label=label) for label, colour in colours.items()
    ]
    figure.legend(handles=handles, loc="outside lower right", ncols=len(labels), frameon=False)
    return figure


def fitted_functions(
    scores: Floats, curves: Mapping[str, Floats], truth: Floats | None, title: str
) -> Figure:
    """Draw fitted probabilities over the raw score, with the true curve where it is known."""
    scores = column("scores", scores)
    curves = {
        name: column(f"the curve {name!r}", values, len(scores))
        for name, values in _checked("curves", curves).items()
    }
    instance("title", title, str)
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.subplots()
    if truth is not None:
        truth = column("truth", truth, len(scores))
        axes.plot(scores, truth, color="black", linewidth=4, alpha=0.25, label="truth")
    for index, (name, values) in enumerate(curves.items()):
        colour = _CYCLE[1 + index % 5]
        style = _LINE_STYLES[index % len(_LINE_STYLES)]
        axes.plot(scores, values, style, color=colour, linewidth=1.6, label=name)
    axes.set(xlabel="ranking score", ylabel="probability of preference", title=title)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def bars_of_gaps(panels: Mapping[str, tuple[Floats, Floats]], title: str, ylabel: str) -> Figure:
    """Draw binned diagrams as in the paper: observed rates as bars, predictions as lines.

    Each panel holds the observed rate and the mean prediction of each bin, NaN where it is empty.
    """
    panels = {name: _pair(name, pair) for name, pair in _checked("panels", panels).items()}
    figure, grid = _panels(panels, title, 2.6, 2.1, margin=0.9, sharex=True, sharey=True)
    for axes, (observed, predicted) in zip(grid, panels.values(), strict=True):
        centres = (np.arange(len(observed)) + 0.5) / len(observed)
        width = 0.9 / len(observed)
        axes.bar(centres, observed, width, color=INK["fit"], alpha=0.75, label="observed")
        ends = (centres - 0.05, centres + 0.05)
        axes.hlines(predicted, *ends, color=INK["other"], linewidth=2, label="predicted")
        axes.set(xlim=(0, 1), ylim=(0, 1.02), xticks=[0, 0.5, 1])
    figure.supxlabel("predicted probability, ten bins", fontsize=9)
    figure.supylabel(ylabel, fontsize=9)
    _legend_below(figure, grid[0])
    return figure


def score_distributions(panels: Mapping[str, tuple[Floats, Floats]], title: str) -> Figure:
    """Draw histograms of the scores of negatives and of positives; each panel holds both."""
    panels = {name: _pair(name, pair) for name, pair in _checked("panels", panels).items()}
    for pair in panels.values():
        for scores in pair:
            require_scores(scores)
    figure, grid = _panels(panels, title, 2.7, 2.9)
    for axes, (negative, positive) in zip(grid, panels.values(), strict=True):
        # Both classes share their bins, so that the histograms can be compared.
        edges = np.histogram_bin_edges(np.concatenate([negative, positive]), 40)
        axes.hist(negative, edges, density=True, color=INK["other"], alpha=0.5, label="not liked")
        axes.hist(positive, edges, density=True, color=INK["fit"], alpha=0.5, label="liked")
        axes.set(xlabel="ranking score", yticks=[])
        axes.spines["left"].set_visible(False)
    grid[0].set_ylabel("density")
    grid[0].legend(frameon=False, fontsize=8)
    return figure


def top_lists(users: Mapping[str, tuple[Sequence[str], Floats, Floats]], title: str) -> Figure:
    """Draw the best items of some users: names, scores and probabilities, best first."""
    figure, grid = _panels(_checked("users", users), title, 3.1, 2.9, sharex=True)
    for axes, (items, scores, probabilities) in zip(grid, users.values(), strict=True):
        positions = np.arange(len(items))[::-1]
        axes.barh(positions, probabilities, color=INK["fit"], alpha=0.75)
        for position, score, probability in zip(positions, scores, probabilities, strict=True):
            text = f"{probability:.0%}  (s = {score:.2f})"
            axes.text(probability + 0.02, position, text, va="center", fontsize=8)
        axes.set_yticks(positions, items, fontsize=8)
        axes.set(xlim=(0, 1.25), xticks=[0, 0.5, 1], xlabel="probability of preference")
    return figure


def grouped_bars(panels: Mapping[str, BarGroups], title: str, ylabel: str) -> Figure:
    """Draw panels of groups of bars with error bars; a value that is NaN is not drawn."""
    for name, groups in _checked("panels", panels).items():
        _checked(f"panels[{name!r}]", groups)
    width = 1.6 * max(len(groups) for groups in panels.values()) + 1.5
    figure, grid = _panels(panels, title, width, 2.7, columns=1)
    for axes, groups in zip(grid, panels.values(), strict=True):
        labels = _inner_names(groups)
        width = _GROUP_WIDTH / len(labels)
        for number, label in enumerate(labels):
            places = [place for place, bars in enumerate(groups.values()) if label in bars]
            drawn = [bars[label] for bars in groups.values() if label in bars]
            offset = width * (number + 0.5) - _GROUP_WIDTH / 2
            axes.bar(
                [place + offset for place in places],
                [value for value, _ in drawn],
                width * 0.95,
                # An error bar of a metric that is never negative must not reach below 0.
                yerr=np.array([(min(half, value), half) for value, half in drawn]).T,
                color=_LONG_CYCLE[number % len(_LONG_CYCLE)],
                label=label,
                error_kw={"linewidth": 0.8},
            )
        axes.set_xticks(range(len(groups)), list(groups))
        axes.set(ylabel=ylabel)
    _legend_below(figure, grid[0])
    return figure


def lines_with_bands(
    panels: Mapping[str, Mapping[str, tuple[Floats, Floats, Floats]]], title: str, xlabel: str
) -> Figure:
    """Draw lines of (x, y, half-width), one panel per metric and one colour per line."""
    for name, lines in _checked("panels", panels).items():
        _checked(f"panels[{name!r}]", lines)
    figure, grid = _panels(panels, title, 4.2, 3.3)
    for axes, lines in zip(grid, panels.values(), strict=True):
        for number, (label, (x, y, half)) in enumerate(lines.items()):
            colour = _CYCLE[number % len(_CYCLE)]
            axes.plot(x, y, "o-", color=colour, markersize=3, linewidth=1.4, label=label)
            axes.fill_between(x, y - half, y + half, color=colour, alpha=0.15, linewidth=0)
        axes.set(xscale="log", xlabel=xlabel)
        ticks = _readable_ticks(np.unique(np.concatenate([x for x, _, _ in lines.values()])))
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks], fontsize=7)
        axes.minorticks_off()
    grid[0].legend(frameon=False, fontsize=8)
    return figure


def _checked(name: str, values: Mapping[str, Inner]) -> Mapping[str, Inner]:
    """A mapping of names to what is drawn, with at least one."""
    if not isinstance(values, Mapping) or not values:
        found = "an empty one" if isinstance(values, Mapping) else shown(values)
        raise DataError(name, "be a dict of names to what is drawn", found)
    for key in values:
        instance(f"a name in {name}", key, str)
    return values


def _pair(name: str, values: Any) -> tuple[Floats, Floats]:
    """A panel's two arrays of one dimension."""
    if not isinstance(values, tuple | list) or len(values) != 2:
        raise DataError(f"panel {name!r}", "be 2 arrays", shown(values))
    return column(f"panel {name!r}", values[0]), column(f"panel {name!r}", values[1])


def _panels(
    panels: Mapping[str, Any],
    title: str,
    width: float,
    height: float,
    margin: float = 0.6,
    columns: int = 5,
    *,
    sharex: bool = False,
    sharey: bool = False,
) -> tuple[Figure, list[Any]]:
    """A figure with one titled panel per name, in rows of so many columns at most."""
    instance("title", title, str)
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(width * columns, height * rows + margin), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharex=sharex, sharey=sharey)
    grid = axes.ravel().tolist()
    figure.suptitle(title, fontsize=11, fontweight="bold")
    for axes, name in zip(grid, panels, strict=False):
        axes.set_title(name, fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    # The lowest panel of each column has the labels of the x axis.
    for axes in grid[max(0, len(panels) - columns) : len(panels)]:
        axes.tick_params(labelbottom=True)
    return figure, grid[: len(panels)]


def _legend_below(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    style: dict[str, Any] = {"ncols": len(labels), "frameon": False, "fontsize": 8}
    figure.legend(handles, labels, loc="outside lower right", **style)


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
