"""Maps for other engines: SQL text, an ONNX graph, a torch module, JSON with test vectors.

No engine's package loads until its exporter is called.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from calibrank._internal.rules import COLUMN_RULES
from calibrank._internal.validation import LARGEST_SCORE, Floats
from calibrank.maps import CalibrationMap
from calibrank.maps.calibration_map import VERSION, require_map
from calibrank.maps.targets.onnx import to_onnx
from calibrank.maps.targets.script import to_painless, to_vespa
from calibrank.maps.targets.sql import to_sql
from calibrank.maps.targets.sql_dialects import DIALECTS
from calibrank.maps.targets.torch import to_torch

__all__ = ["DIALECTS", "to_json", "to_onnx", "to_painless", "to_sql", "to_torch", "to_vespa"]

# Breakpoints that are tested at most: a step map can have thousands.
_MOST_BREAKPOINTS = 50


def to_json(fitted: CalibrationMap) -> str:
    """The saved map with test vectors: scores, difficult ones included, and their probabilities.

    Rows under `invalid` have none: an implementation returns null, or raises an error.
    `docs/json-format.md` describes every field, in enough detail to implement the map in another
    language.

    >>> from calibrank import MinMax
    >>> document = json.loads(to_json(MinMax().fit([1.0, 2.0, 5.0], [0, 0, 1])))
    >>> document["map"]["curve"]["kind"], document["vectors"][0]
    ('rescale', {'score': -1e+30, 'probability': 0.0})
    """
    require_map(fitted)
    scores = hard_scores(fitted).tolist()
    vectors = []
    for place, score in enumerate(scores):
        row = _row(fitted, score, place)
        vectors.append({**row, "probability": fitted.predict(score, row.get("columns"))})
    document = {
        "format": "calibrank-vectors",
        "version": VERSION,
        "map": json.loads(fitted.to_json()),
        "vectors": vectors,
        "invalid": _invalid_rows(fitted, scores[len(scores) // 2]),
    }
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def _row(fitted: CalibrationMap, score: float | None, place: int) -> dict[str, Any]:
    """A score, with other values of the columns each time."""
    columns: dict[str, str | float] = {}
    for term in fitted.terms:
        columns |= term.example(place)
    return {"score": score, "columns": columns} if columns else {"score": score}


def _invalid_rows(fitted: CalibrationMap, score: float) -> list[dict[str, Any]]:
    """Rows without a probability: in turn each input is missing, and each number out of range."""
    rows = [_row(fitted, invalid, 1) for invalid in (None, 1.1 * LARGEST_SCORE)]
    for name in fitted.columns:
        invalid: list[float | None] = [None]
        if name in fitted.number_columns:
            rule = COLUMN_RULES[fitted.number_columns[name]]
            invalid += [rule.low - abs(rule.low), rule.high * 1.1]
        for value in invalid:
            row = _row(fitted, score, 1)
            row["columns"][name] = value
            rows.append(row)
    return rows


def hard_scores(fitted: CalibrationMap) -> Floats:
    """Scores at which an implementation is likely to be inaccurate, in increasing order."""
    # Some of the breakpoints, evenly chosen, the first and the last included.
    points = np.array(fitted.curve.breakpoints or (0.0,))
    count = min(len(points), _MOST_BREAKPOINTS)
    points = points[np.unique(np.linspace(0, len(points) - 1, count).astype(int))]
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
