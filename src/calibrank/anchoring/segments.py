"""Anchor a map on labels of randomly shown pairs, by segment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from calibrank._internal.segment_keys import encode_columns
from calibrank._internal.validation import Numbers, column, score_column
from calibrank.anchoring.anchor import anchor, label_weights
from calibrank.curves.segments import change_by_segment, column_names
from calibrank.evidence import Evidence
from calibrank.maps import CalibrationMap, GroupedMap
from calibrank.summary import Summary
from calibrank.summary.by_segment import SegmentSums, bin_edges


def anchor_by_segment(
    fitted: CalibrationMap,
    scores: Numbers,
    labels: Numbers,
    segments: Any,
    by: str | Sequence[str],
    propensity: Numbers | None = None,
    population: Numbers | None = None,
    *,
    slopes: bool = True,
) -> GroupedMap:
    """Anchor a map as `anchor` does, then change it by segment as far as the same labels support.

    `by` names the segment columns of `segments`, a mapping or dataframe with one value per label.
    With few labels, segments are shrunk to the anchored map: nothing is lost by asking for them. Of
    a map that is by segment already, the global map is anchored; how segments differ in a biased
    log is as uncertain as its base rate, so it is not used.

    >>> from calibrank import Gaussian
    >>> biased = Gaussian().fit([-2.0, -1.0, 0.0, 1.0, 2.0, 3.0], [0, 0, 1, 0, 1, 1])
    >>> rng = np.random.default_rng(0)
    >>> scores, country = rng.normal(size=500), rng.choice(["NL", "DE"], 500)
    >>> labels = rng.random(500) < np.where(country == "NL", 0.6, 0.1)
    >>> fitted = anchor_by_segment(biased, scores, labels, {"country": country}, "country")
    >>> fitted.predict([0.0, 0.0], {"country": ["NL", "DE"]}).round(1).tolist()
    [0.6, 0.1]
    """
    columns = column_names(by)
    if isinstance(fitted, GroupedMap):
        fitted = fitted.base
    shown = score_column(scores)[0].astype(np.float64)
    anchored = anchor(fitted, shown, labels, propensity, population)
    weights = label_weights(propensity, len(shown))
    positive = weights * column("labels", labels, len(shown))
    evidence = Evidence.trusted(positive, weights, "naive")
    sums = SegmentSums(bin_edges(Summary.of(shown, evidence)))
    sums.add(shown, evidence, encode_columns(columns, segments, len(shown)))
    return change_by_segment(anchored, sums, columns, slopes=slopes)
