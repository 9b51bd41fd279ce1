"""Anchor a map on labels of randomly shown pairs, with covariates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from calibrank._internal.validation import Numbers, column, score_column
from calibrank.anchoring.anchor import anchor, label_weights
from calibrank.curves.covariates import Covariates
from calibrank.evidence import Evidence
from calibrank.maps import AdditiveMap, CalibrationMap


def anchor_with_covariates(
    fitted: CalibrationMap,
    scores: Numbers,
    labels: Numbers,
    features: Any,
    columns: str | Sequence[str],
    propensity: Numbers | None = None,
    population: Numbers | None = None,
    *,
    categories: Sequence[str] = (),
) -> AdditiveMap:
    """Anchor a map as `anchor` does, then add functions of features as far as the labels support.

    `columns` name the features, a mapping or dataframe with one value per label; those that are
    text or named in `categories` are categories, as in `Covariates`. With few labels the functions
    are shrunk to nothing, and the intercept and slope to those of the anchored map. Of a map with
    covariates or by segment, the map of scores alone is anchored.

    >>> from calibrank import Gaussian
    >>> biased = Gaussian().fit([-2.0, -1.0, 0.0, 1.0, 2.0, 3.0], [0, 0, 1, 0, 1, 1])
    >>> rng = np.random.default_rng(0)
    >>> scores, age = rng.normal(size=2_000), rng.uniform(-1, 1, 2_000)
    >>> labels = rng.random(2_000) < 1 / (1 + np.exp(1 - scores - 2 * age))
    >>> fitted = anchor_with_covariates(biased, scores, labels, {"age": age}, "age")
    >>> fitted.predict([0.0, 0.0], {"age": [-0.9, 0.9]}).round(1).tolist()
    [0.1, 0.7]
    """
    calibrator = Covariates(columns, categories=categories)  # type: ignore[arg-type]  # it checks
    alone = getattr(fitted, "base", fitted)
    shown = score_column(scores)[0].astype(np.float64)
    anchored = anchor(alone, shown, labels, propensity, population)
    weights = label_weights(propensity, len(shown))
    positive = weights * column("labels", labels, len(shown))
    evidence = Evidence.trusted(positive, weights, "naive")
    read = calibrator.read(features, len(shown))
    return calibrator.fit_columns(anchored, shown, evidence, read, shrink_curve=True)
