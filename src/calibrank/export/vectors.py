"""Maps as JSON with test vectors: what an implementation in another language needs."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from calibrank._internal.json import digest_of
from calibrank._internal.validation import LARGEST_SCORE, Floats
from calibrank.maps import AdditiveMap, CalibrationMap, CategoryTerm, GroupedMap, Term, TopMap
from calibrank.maps.calibration_map import require_map

# Breakpoints that are tested at most: a step map can have thousands.
_MOST_BREAKPOINTS = 50


def to_json(fitted: CalibrationMap) -> str:
    """The saved map with test vectors: scores, difficult ones included, and their probabilities.

    `docs/json-format.md` describes every field, in enough detail to implement the map in another
    language.

    >>> from calibrank import MinMax
    >>> document = json.loads(to_json(MinMax().fit([1.0, 2.0, 5.0], [0, 0, 1])))
    >>> document["map"]["kind"], document["vectors"][0]
    ('rescale', {'score': -1e+30, 'probability': 0.0})
    """
    require_map(fitted)
    content = fitted.to_dict()
    scores = hard_scores(fitted)
    vectors = []
    for place, score in enumerate(scores.tolist()):
        vectors.append({"score": score, **_at(fitted, score, place)})
    document = {
        "format": "calibrank-vectors",
        "version": 1,
        "map": {**content, "digest": digest_of(content)},
        "vectors": vectors,
    }
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def _at(fitted: CalibrationMap, score: float, place: int) -> dict[str, Any]:
    """The probability at a score, in each of the segments in turn where there are any."""
    if isinstance(fitted, AdditiveMap):
        features = {term.column: _value_of(term, place) for term in fitted.terms}
        return {"features": features, "probability": fitted.predict(score, features)}
    if isinstance(fitted, TopMap):
        rank = (1, fitted.n, fitted.n + 1, 1000)[place % 4]
        probability = fitted.predict(score, rank)
        return {"features": {fitted.column: rank}, "probability": probability}
    if not isinstance(fitted, GroupedMap):
        return {"probability": fitted.predict(score)}
    key = ((), *fitted.keys)[place % (len(fitted.segments) + 1)]
    values = [*key, *[None] * (len(fitted.columns) - len(key))]
    segments = dict(zip(fitted.columns, values, strict=True))
    return {"segments": segments, "probability": fitted.predict(score, segments)}


def _value_of(term: Term | CategoryTerm, place: int) -> str | float | None:
    """In turn each category, one that is not known and none; or each knot, and numbers around."""
    if isinstance(term, CategoryTerm):
        values = [*term.categories, "\N{SNOWMAN} (unknown)", None]
        return values[place % len(values)]
    knots = np.array(term.knots)
    middles = (knots[1:] + knots[:-1]) / 2
    width = knots[-1] - knots[0]
    beyond = [knots[0] - width, knots[-1] + width]
    numbers = np.concatenate([knots, middles, np.nextafter(knots, -np.inf), beyond])
    # Another step than that of categories, so that they do not always come together.
    return float(numbers[7 * place % len(numbers)])


def hard_scores(fitted: CalibrationMap) -> Floats:
    """Scores at which an implementation is likely to be inaccurate, in increasing order."""
    points = _breakpoints(fitted)
    width = points[-1] - points[0] or 1.0
    # The range with half of its width on both sides, and far beyond.
    inside = np.linspace(points[0] - width / 2, points[-1] + width / 2, 41)
    distances = width * np.array([3.0, 30.0, 1000.0])
    far = np.concatenate([points[0] - distances, points[-1] + distances])
    # Neighbors of breakpoints find comparisons that are strict on the wrong side.
    neighbors = np.concatenate([np.nextafter(points, -np.inf), np.nextafter(points, np.inf)])
    # Subnormal numbers and products that underflow; exponentials that overflow.
    tiny = np.array([0.0, 5e-324, 1e-310, 1e-160, 1e-30, 1e-8])
    huge = np.array([40.0, 800.0, 1e10, LARGEST_SCORE])
    scores = np.concatenate([points, neighbors, inside, far, tiny, -tiny[1:], huge, -huge])
    return np.unique(scores[np.abs(scores) <= LARGEST_SCORE])


def _breakpoints(fitted: CalibrationMap) -> Floats:
    """Some of the breakpoints, evenly chosen, the first and the last included."""
    points = np.array(fitted.breakpoints or (0.0,))
    count = min(len(points), _MOST_BREAKPOINTS)
    chosen = np.unique(np.linspace(0, len(points) - 1, count).astype(int))
    return points[chosen]
