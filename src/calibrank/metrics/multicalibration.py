"""A test of calibration in many segments at once, with the chance of the worst one accounted for.

The worst of a hundred segments looks bad by chance. The test compares the largest standardized gap
with its distribution if all probabilities are right: signs of whole users are flipped at random
(wild bootstrap), which keeps the dependence of a user's rows and of overlapping segments. A
segment's adjusted p-value is the chance that any segment deviates as much (Westfall and Young).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from calibrank._internal.logit import logit
from calibrank._internal.segment_keys import Encoded, encode_columns, names_of
from calibrank._internal.validation import (
    Floats,
    IdsLike,
    Indices,
    Numbers,
    add_up,
    ids,
    probability_column,
    row_parts,
)
from calibrank.errors import DataError
from calibrank.evidence import Evidence, Labels, nonzero_evidence
from calibrank.metrics.calibration_test import MODEL_KINDS, PositiveMasses, row_variances

_DRAWS = 2000
# Users beyond this many share a cluster: the distribution no longer changes.
_CLUSTERS = 1024
# Probabilities of 0 and 1 have infinite log odds.
_CLIP = 1e-9
_MISSING = "(missing)"
_CROSS = " x "
# Combinations of two columns that are looked at: those with the most rows, whatever the labels are.
_COMBINATIONS = 1000
_FEWEST_ROWS = 20
# The sum of p (1 - p): with fewer expected positives, one of them looks like a deviation.
_LEAST_INFORMATION = 5.0
_SWEEPS = 20
_SIGNIFICANT = 0.05


class SegmentGap(NamedTuple):
    """The rates of one segment, and the p-value of its deviation among all segments."""

    column: str
    value: str
    rows: int
    predicted: float
    observed: float
    p_value: float
    """Adjusted for the number of segments, and for both searches: columns and pairs of them."""


class MulticalibrationTest(NamedTuple):
    """The largest deviation among all segments, and what chance explains of it."""

    error: float
    """Largest mean of (label - probability) over all rows, where rows outside a segment count 0."""
    p_value: float
    """The chance of a deviation as large in any segment or pair if all probabilities are right."""
    segments: tuple[SegmentGap, ...]
    """The surest deviation first."""
    pairs: tuple[SegmentGap, ...] = ()
    """The same for pairs of columns: what their columns, each alone, leave unexplained."""

    @property
    def advice(self) -> str:
        """Which pair of columns to add as a level; empty if chance explains all pairs."""
        if not self.pairs or self.pairs[0].p_value >= _SIGNIFICANT:
            return ""
        first = self.pairs[0]
        columns = ", ".join(f'"{name}"' for name in first.column.split(_CROSS))
        return (
            f"Add Level({columns}): where it is {first.value}, {first.observed:.1%} were observed "
            f"and {first.predicted:.1%} predicted (p = {first.p_value:.3f}, adjusted for the "
            f"{len(self.pairs):,} combinations that were looked at)."
        )


def multicalibration_test(
    probabilities: Numbers, labels: Labels, segments: Any, *, users: IdsLike | None = None
) -> MulticalibrationTest:
    """Test whether probabilities are calibrated in every segment; small p-values contradict it.

    `segments` is a mapping (or a dataframe) of columns with one value per row; each value of each
    column is a segment, in which level and slope are tested. With `users`, labels of one user may
    depend on each other. `pairs` has the combinations of two columns, at most 1,000; `advice` names
    the pair that a map should have a level of. If all probabilities are right, the chance of any
    p-value below 5%, of segments or pairs, is about 5% (5 to 6.5% in three simulated worlds).

    >>> rng = np.random.default_rng(0)
    >>> country = rng.choice(["NL", "DE", "BE"], 3000)
    >>> labels = rng.random(3000) < np.where(country == "NL", 0.4, 0.3)
    >>> result = multicalibration_test(np.full(3000, 0.3), labels, {"country": country})
    >>> result.p_value < 0.01, result.segments[0].value
    (True, 'NL')
    """
    p = probability_column(probabilities).astype(np.float64)
    evidence = nonzero_evidence(labels, len(p))
    names = names_of("segments", segments)
    if not names:
        raise DataError("segments", "have at least one column", "none")
    columns = dict(zip(names, encode_columns(names, segments, len(p), "segments"), strict=True))
    clusters = np.arange(len(p)) % _CLUSTERS
    if users is not None:
        codes = np.unique(ids("users", users, len(p)), return_inverse=True)[1]
        clusters = codes.ravel() % _CLUSTERS
    tests = {
        name: SegmentSums.of(p, evidence, column, clusters) for name, column in columns.items()
    }
    crossed = _pair_sums(p, evidence, columns, clusters)
    # Two searches: each p-value counts double (Bonferroni), so that a thousand pairs do not cost
    # the few columns more than that.
    searches = 2 if crossed else 1
    is_estimated = evidence.kind not in MODEL_KINDS
    segments_found = _gaps(tests, searches, is_estimated=is_estimated)
    pairs = _gaps(crossed, searches, is_estimated=is_estimated)
    error = max(float(np.abs(test.residuals).max()) for test in tests.values())
    return MulticalibrationTest(
        float(error / evidence.total.sum()),
        min(gap.p_value for gap in (*segments_found[:1], *pairs[:1])),
        tuple(segments_found),
        tuple(pairs),
    )


def _gaps(
    tests: Mapping[str, SegmentSums], searches: int, *, is_estimated: bool
) -> list[SegmentGap]:
    """The gaps of one of several searches, the surest first."""
    if not tests:
        return []
    statistics = [test.statistics for test in tests.values()]
    adjusted = adjusted_p_values(statistics, is_estimated=is_estimated)
    gaps: list[SegmentGap] = []
    for (name, test), p_values in zip(tests.items(), adjusted, strict=True):
        # The smaller p-value of level and slope.
        smaller = np.minimum(searches * np.minimum(*np.split(p_values, 2)), 1)
        for place in np.flatnonzero(test.total > 0).tolist():
            value = test.values[place]
            observed = float(test.positive[place] / test.total[place])
            gap = float(test.residuals[place] / test.total[place])
            gaps.append(
                SegmentGap(
                    name,
                    _MISSING if value is None else value,
                    int(test.rows[place]),
                    observed - gap,
                    observed,
                    float(smaller[place]),
                )
            )
    return sorted(gaps, key=lambda gap: (gap.p_value, -abs(gap.observed - gap.predicted)))


def _pair_sums(
    p: Floats, evidence: Evidence, columns: Mapping[str, Encoded], clusters: Indices
) -> dict[str, SegmentSums]:
    """The sums of combinations of two columns, with what either column alone explains removed."""
    residuals = evidence.positive - evidence.total * p
    information = evidence.total * p * (1 - p)
    crossed = [_crossed(*pair) for pair in combinations(columns.items(), 2)]
    sizes = np.sort(np.concatenate([[0.0], *[add_up(each.codes, None) for each, _ in crossed]]))
    fewest = max(_FEWEST_ROWS, sizes[-_COMBINATIONS] if len(sizes) > _COMBINATIONS else 0)
    tests = {}
    for (cells, name), (one, two) in zip(crossed, combinations(columns.values(), 2), strict=True):
        size = len(cells.values)
        kept = add_up(cells.codes, None, size) >= fewest
        kept &= add_up(cells.codes, p * (1 - p), size) >= _LEAST_INFORMATION
        if kept.any():
            explained = information * _additive(residuals, information, one, two)
            test = SegmentSums.of(p, evidence, cells, clusters, explained)
            # Without mass or statistics, a combination is neither shown nor tested.
            both = np.tile(kept, 2)
            tests[name] = test._replace(total=test.total * kept, statistics=test.statistics * both)
    return tests


def _crossed(one: tuple[str, Encoded], two: tuple[str, Encoded]) -> tuple[Encoded, str]:
    """The combinations of two columns that occur, as one column, and its name."""
    (first, a), (second, b) = one, two
    found, codes = np.unique(a.codes * len(b.values) + b.codes, return_inverse=True)
    values = []
    for number in found.tolist():
        parts = a.values[number // len(b.values)], b.values[number % len(b.values)]
        values.append(_CROSS.join(_MISSING if part is None else part for part in parts))
    return Encoded(codes.ravel(), [*values]), f"{first}{_CROSS}{second}"


def _additive(residuals: Floats, information: Floats, one: Encoded, two: Encoded) -> Floats:
    """What a shift per value of each of two columns explains of residuals, by backfitting."""
    shift: Floats = np.zeros(len(residuals))
    for each in (one, two) * _SWEEPS:
        size = len(each.values)
        left = add_up(each.codes, residuals - information * shift, size)
        mass = np.maximum(add_up(each.codes, information, size), 1e-300)
        shift = shift + (left / mass)[each.codes]
    return shift


class SegmentSums(NamedTuple):
    """Sums of one column's segments; `statistics` is clusters x (2 * segments), standardized."""

    values: list[str | None]
    rows: Floats
    positive: Floats
    total: Floats
    residuals: Floats
    statistics: Floats

    @classmethod
    def of(
        cls,
        probabilities: Floats,
        evidence: Evidence,
        column: Encoded,
        clusters: Indices,
        explained: Floats | float = 0.0,
    ) -> SegmentSums:
        """Sums of a column; `explained` is left out of what is tested."""
        size = len(column.values)
        codes, explained = column.codes, np.broadcast_to(explained, len(probabilities))
        mean_inverse = 1.0
        if evidence.kind not in MODEL_KINDS:
            mean_inverse = PositiveMasses.of(evidence).mean_inverse
        log_odds = np.empty(len(probabilities))
        mass, moment = np.zeros((2, size))
        for part in row_parts(len(log_odds)):
            p = probabilities[part]
            log_odds[part] = logit(np.clip(p, _CLIP, 1 - _CLIP))
            information = evidence.total[part] * p * (1 - p)
            mass += add_up(codes[part], information, size)
            moment += add_up(codes[part], information * log_odds[part], size)
        # The slope turns around the mean of its segment, so that it is no copy of the level.
        mean = moment / np.maximum(mass, 1e-300)
        sums = np.zeros((2, (int(clusters.max()) + 1) * size))
        by_segment = np.zeros((6, size))
        for part in row_parts(len(log_odds)):
            rows = evidence.rows(part)
            slope = log_odds[part] - mean[codes[part]]
            residuals = rows.positive - rows.total * probabilities[part]
            variance = row_variances(probabilities[part], rows, mean_inverse)
            unexplained = residuals - explained[part]
            places = clusters[part] * size + codes[part]
            for each, of_rows in zip(sums, (unexplained, unexplained * slope), strict=True):
                np.add.at(each, places, of_rows)
            columns = (rows.positive, rows.total, residuals, variance, variance * slope**2)
            by_segment += [add_up(codes[part], each, size) for each in (None, *columns)]
        n_rows, positive, total, residuals, *least = by_segment
        parts = []
        for each, least_of_segment in zip(sums.reshape(2, -1, size), least, strict=True):
            # With few positives, squared residuals are far too small.
            spread = np.sqrt(np.maximum((each**2).sum(axis=0), least_of_segment))
            parts.append(each / np.maximum(spread, 1e-300))
        return cls(column.values, n_rows, positive, total, residuals, np.hstack(parts))


def adjusted_p_values(
    statistics: list[Floats], seed: int = 0, *, is_estimated: bool = False
) -> list[Floats]:
    """P-values of column sums, against the largest column sum under random signs of the rows.

    `is_estimated` says that columns were divided by a variance that depends on propensities.
    """
    together = np.hstack(statistics)
    rng = np.random.default_rng(seed)
    signs = rng.choice([-1.0, 1.0], size=(_DRAWS, len(together)))
    drawn = signs @ together
    if is_estimated:
        # Squared residuals of few positives can be far below the variance that divides them.
        squares = (together**2).sum(axis=0)
        few = np.flatnonzero((squares > 0) & (squares < 1))
        drawn[:, few] += np.sqrt(1 - squares[few]) * rng.normal(size=(_DRAWS, len(few)))
    largest = np.sort(np.abs(drawn).max(axis=1))
    observed = np.abs(together.sum(axis=0))
    # Rounding must not make a draw that equals the observed sum smaller than it.
    exceeding = len(largest) - np.searchsorted(largest, observed * (1 - 1e-12))
    p_values: Floats = (1 + exceeding) / (1 + len(largest))
    lengths = [part.shape[1] for part in statistics]
    return np.split(p_values, np.cumsum(lengths)[:-1])
