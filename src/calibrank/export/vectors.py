"""Maps as JSON with test vectors: what a reimplementation in another language needs."""

import json

import numpy as np

from calibrank._json import digest_of
from calibrank._validation import LARGEST_SCORE, Floats
from calibrank.maps import CalibrationMap, LogisticMap, RescaleMap, StepMap

_MOST_EDGES = 50


def to_json(fitted: CalibrationMap) -> str:
    """The saved map beside scores and the probabilities it gives them, hard cases included.

    `docs/json-format.md` says what each field means, well enough to write the map again in another language.

    >>> from calibrank import MinMax
    >>> document = json.loads(to_json(MinMax().fit([1.0, 2.0, 5.0], [0, 0, 1])))
    >>> document["map"]["kind"], document["vectors"][0]
    ('rescale', {'score': -1e+30, 'probability': 0.0})
    """
    content = fitted.to_dict()
    scores = hard_scores(fitted)
    pairs = zip(scores.tolist(), fitted.predict(scores).tolist(), strict=True)
    vectors = [{"score": score, "probability": probability} for score, probability in pairs]
    document = {
        "format": "calibrank-vectors",
        "version": 1,
        "map": {**content, "digest": digest_of(content)},
    }
    return json.dumps({**document, "vectors": vectors}, indent=1, allow_nan=False) + "\n"


def hard_scores(fitted: CalibrationMap) -> Floats:
    """Scores at which an implementation is likely to go wrong, in order, none twice."""
    marks = _marks(fitted)
    width = marks[-1] - marks[0] or 1.0
    between = np.linspace(marks[0] - width / 2, marks[-1] + width / 2, 41)
    far = marks[[0, -1]] + width * np.array([[-1000.0, -30.0, -3.0], [3.0, 30.0, 1000.0]]).T
    tiny = np.array([0.0, 5e-324, 1e-310, 1e-160, 1e-30, 1e-8])
    huge = np.array([40.0, 800.0, 1e10, LARGEST_SCORE])
    around = (marks, np.nextafter(marks, -np.inf), np.nextafter(marks, np.inf))
    every = np.concatenate([*around, between, far.ravel(), tiny, -tiny[1:], huge, -huge])
    return np.unique(every[np.abs(every) <= LARGEST_SCORE])


def _marks(fitted: CalibrationMap) -> Floats:
    """Where a map changes its formula."""
    if isinstance(fitted, StepMap):
        edges = fitted.edges or (0.0,)
        chosen = np.unique(np.linspace(0, len(edges) - 1, min(len(edges), _MOST_EDGES)).astype(int))
        return np.array(edges)[chosen]
    if isinstance(fitted, LogisticMap | RescaleMap):
        return np.array([fitted.low, fitted.high])
    return np.array([-1.0, 0.0, 1.0])
