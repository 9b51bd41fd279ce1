"""Markdown tables of results: a mean with its interval beside the published number."""

from __future__ import annotations

import math
from collections.abc import Sequence

from calibrank.experiment.statistics import Spread


def header(names: Sequence[str]) -> str:
    """The first two lines of a table."""
    return line(names) + "\n" + "|---" * len(names) + "|"


def line(cells: Sequence[str]) -> str:
    """One row of a table."""
    return "| " + " | ".join(cells) + " |"


def result_cell(spread: Spread | None, published: float | None, *, bold: bool = False) -> str:
    """The mean, half its interval, and in brackets the published number and the difference."""
    if spread is None:
        return ""
    mean = f"**{spread.mean:.4f}**" if bold else f"{spread.mean:.4f}"
    interval = "" if math.isnan(spread.half) else f" ±{spread.half:.4f}"
    if published is None:
        return mean + interval
    return f"{mean}{interval} ({published:.4f}, {spread.mean - published:+.4f})"


def short_cell(spread: Spread | None, published: float | None) -> str:
    """The mean with the published number in brackets, without a leading zero."""
    if spread is None:
        return ""
    ours = _short(spread.mean)
    return ours if published is None else f"{ours} ({_short(published)})"


def p_value(p: float) -> str:
    """A p-value in words; "-" where it is not defined."""
    return "-" if math.isnan(p) else f"p = {p:.2g}"


def _short(value: float) -> str:
    return f"{value:.4f}".removeprefix("0")
