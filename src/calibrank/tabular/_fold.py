"""Build the summary of one fold, including positives that cannot be weighted at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import cast

import numpy as np

from calibrank._internal.threads import thread_count
from calibrank._internal.validation import Floats
from calibrank.anchoring import Positives
from calibrank.evidence import Evidence, impressions, make_evidence, naive, soft_evidence
from calibrank.summary import Summary, SummaryBuilder
from calibrank.tabular.columns import Columns
from calibrank.tabular.propensity import POPULARITY
from calibrank.tabular.rows import Rows

# Positives kept for the sensitivity analysis. Its answers no longer change with more of them.
_MOST_POSITIVES = 400_000

# Batches of positives are merged until they have so many rows: every correction of a summary has
# a fixed cost.
_CORRECTION_ROWS = 2**16


class FoldBuilder:
    """Builds the summary of one fold of a table.

    A propensity from popularity is known only after the whole table has been read. Until then a
    positive is added with its total mass and no positive mass, and kept. `set_exposure` replaces
    that evidence by the final one.
    """

    def __init__(self, columns: Columns, distinct: int) -> None:
        self.columns = columns
        self.builder = SummaryBuilder(distinct)
        self.kept: list[Rows] = []
        self.rows = 0
        self.only_positives = True

    def add(self, rows: Rows) -> None:
        """Add valid rows."""
        if not len(rows):
            return
        self.rows += len(rows)
        self.only_positives = self.only_positives and bool((rows.labels == 1).all())
        # Impressions identify the base rate, so there is no sensitivity to analyse.
        if self.columns.evidence not in (naive, impressions):
            self._keep(rows.take(np.flatnonzero(rows.labels != 0)))
        self.builder.update(rows.scores, first_evidence(self.columns, rows))

    def merge(self, other: FoldBuilder) -> FoldBuilder:
        """Add all rows of another builder of the same fold, and return this one."""
        self.builder.merge(other.builder)
        self.kept += other.kept
        self.rows += other.rows
        self.only_positives = self.only_positives and other.only_positives
        return self

    def set_exposure(self, exposures: Iterable[Floats]) -> None:
        """Weight the kept positives by their exposure, given as one array per kept batch."""
        known = (
            replace(rows, propensity=exposure)
            for rows, exposure in zip(self.kept, exposures, strict=True)
        )
        weighted = (rows.take(_weights(rows) > 0) for rows in _merged(known))
        self.kept = [rows for rows in weighted if len(rows)]
        self.builder.correct(map(self._correction, self.kept))

    def summary(self) -> Summary:
        """Return the summary of all rows so far."""
        return self.builder.summary()

    def positives(self) -> Positives | None:
        """Return the kept positives, at most `_MOST_POSITIVES` of them, evenly chosen."""
        if not self.kept:
            return None
        count = sum(len(rows) for rows in self.kept)
        step = -(-count // _MOST_POSITIVES)  # rounded up
        chosen = Rows.joined(list(_every(step, self.kept)))
        if chosen.propensity is None:
            return None
        return Positives(chosen.scores, chosen.propensity, step * _weights(chosen))

    def _keep(self, positives: Rows) -> None:
        if not len(positives):
            return
        # Weights of a small integer type would overflow where a row stands for several.
        weights = np.ones(len(positives))
        if positives.weights is not None:
            weights = positives.weights.astype(np.float64)
        items = positives.items if positives.propensity is None else None
        self.kept.append(replace(positives.without_columns(), weights=weights, items=items))
        if positives.propensity is not None:
            self._thin_out()

    def _thin_out(self) -> None:
        """Drop every other kept positive if there are too many; the rest stands for all."""
        count = sum(len(rows) for rows in self.kept)
        if count > _MOST_POSITIVES // thread_count():
            both = Rows.joined(self.kept)
            half = both.take(np.arange(0, count, 2))
            # About twice the weight: the halves of rows thinned out before differ.
            factor = _weights(both).sum() / _weights(half).sum()
            self.kept = [replace(half, weights=factor * _weights(half))]

    def _correction(self, rows: Rows) -> tuple[Floats, Evidence, Evidence]:
        """Return scores, their final evidence and the evidence they were added with."""
        propensity = POPULARITY.propensity(cast("Floats", rows.propensity))
        function = self.columns.evidence
        final = make_evidence(function, rows.labels, propensity, rows.weights)
        no_positives = np.zeros(len(rows))
        return rows.scores, final, naive(no_positives, weights=rows.weights)


def first_evidence(columns: Columns, rows: Rows) -> Evidence:
    """Evidence as far as it is known: without any positive mass until exposure is estimated."""
    function = columns.evidence
    rule = columns.label_rule
    if rule is not None and not rule.is_binary:
        return soft_evidence(function, rows.labels, rows.propensity, rows.weights)
    # The rules have been checked, and the labels may stay a column of small integers.
    total = rows.weights
    unit_weights = total is None
    if total is None:
        total = np.broadcast_to(np.float64(1), len(rows))  # a broadcast scalar takes no memory
    if function is naive:
        positive = rows.labels if rows.weights is None else rows.labels * rows.weights
        return Evidence.trusted(positive, total, "naive", unit_weights=unit_weights)
    if rows.propensity is None and function is not impressions:
        nothing = np.broadcast_to(np.float64(0), len(rows))
        return Evidence.trusted(
            nothing, total, function.__name__, unit_weights=unit_weights, no_positives=True
        )
    return make_evidence(function, rows.labels, rows.propensity, rows.weights)


def _weights(rows: Rows) -> Floats:
    return cast("Floats", rows.weights)  # kept rows always have them


def _every(step: int, batches: Iterable[Rows]) -> Iterator[Rows]:
    """Choose every `step`-th row, counted over all batches."""
    before = 0
    for rows in batches:
        yield rows.take(np.arange(-before % step, len(rows), step))
        before += len(rows)


def _merged(batches: Iterable[Rows]) -> Iterator[Rows]:
    """Concatenate small batches; only numeric columns remain."""
    pending: list[Rows] = []
    for batch in batches:
        pending.append(batch)
        if sum(len(rows) for rows in pending) >= _CORRECTION_ROWS:
            yield Rows.joined(pending)
            pending = []
    if pending:
        yield Rows.joined(pending)
