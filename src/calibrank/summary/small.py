"""Summaries as small arrays, for files that hold a summary among other things."""

from __future__ import annotations

from dataclasses import fields

from calibrank._internal.arguments import whole
from calibrank._internal.npz import Arrays
from calibrank.summary import _file
from calibrank.summary.bins import Table
from calibrank.summary.placement import look_at_bins, place
from calibrank.summary.summary import Summary

# A grid with bins on both sides of its origin has at least one per octave.
_FEWEST_BINS = 512


def to_arrays(summary: Summary) -> Arrays:
    """The arrays of a summary by name."""
    values = {field.name: getattr(summary, field.name) for field in fields(summary)}
    return _file.pack(_file.Content(**values))


def from_arrays(arrays: Arrays) -> Summary:
    """Rebuild a summary; a `ValueError` says what is wrong with other arrays."""
    return Summary(**_file.unpack(arrays)._asdict())


def coarsened(summary: Summary, capacity: int) -> Summary:
    """The summary pooled into at most `capacity` bins of a grid, if it has more.

    >>> import numpy as np
    >>> len(coarsened(Summary.of(np.linspace(1, 2, 5000), np.zeros(5000)), 1024)) <= 1024
    True
    """
    whole("capacity", capacity, _FEWEST_BINS, remedy="Fewer bins cannot span a range of scores.")
    if len(summary) <= capacity:
        return summary
    sample = look_at_bins(summary.scores, summary.total)
    if summary.grid is None:
        placement = place(summary.low, summary.high, sample, capacity=capacity)
    else:
        # Bins of one placement can be merged exactly; others would have to be divided.
        placement = summary.grid.placement
    table = Table.spanning(
        summary.low, summary.high, capacity, bits=summary.bits, placement=placement
    )
    summary.add_to(table)
    return Summary.of_table(table, summary.low, summary.high, summary.rows, summary.kind)
