"""What a notebook shows of a map: a small card of HTML without style sheets or scripts."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from calibrank._internal.validation import Floats
from calibrank.maps.describe import describe_base_rate

if TYPE_CHECKING:
    from calibrank.maps.calibration_map import CalibrationMap

# Size of the curve in pixels, and of the line of text below it.
_WIDTH = 220
_HEIGHT = 110
_TEXT_HEIGHT = 16


def card(fitted: CalibrationMap, scores: Floats) -> str:
    """Method, parameters, source of the base rate, and curve as HTML; all text is escaped.

    >>> from dataclasses import replace
    >>> from calibrank import MinMax
    >>> fitted = MinMax().fit([0.0, 1.0], [0, 1])
    >>> named = replace(fitted, record=replace(fitted.record, method="<b>"))
    >>> "&lt;b&gt;" in card(named, [0.0, 1.0])
    True
    """
    record = fitted.record
    fit = (
        f"Fitted on {record.rows:,} rows by {record.evidence} evidence, "
        f"mean preference {record.positive / record.total:.2%}."
    )
    sentences = [fitted.description, fit, describe_base_rate(record)]
    lines = "".join(f"<div>{html.escape(sentence)}</div>" for sentence in sentences)
    return (
        '<div style="display:flex;gap:1.5em;align-items:flex-start"><div style="max-width:32em">'
        f"<b>{html.escape(fitted.method)}</b>{lines}{_parameter_table(fitted)}</div>"
        f"{curve(scores, fitted.without_terms().predict(scores))}</div>"
    )


def _parameter_table(fitted: CalibrationMap) -> str:
    errors = fitted.standard_errors
    rows = []
    for name, value in fitted.parameters.items():
        cells = [html.escape(name), f"{value:.6g}", f"&plusmn; {errors[name]:.2g}"]
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    return f"<table>{''.join(rows)}</table>"


def curve(scores: Floats, probabilities: Floats) -> str:
    """The curve as SVG, with the first and the last score below it."""
    low = float(scores[0])
    high = float(scores[-1])
    points = []
    for score, probability in zip(scores, probabilities, strict=True):
        x = (float(score) - low) / (high - low or 1) * _WIDTH
        y = _HEIGHT * (1 - float(probability))
        points.append(f"{x:.1f},{y:.1f}")
    label = (
        f"Probability from {float(probabilities[0]):.1%} at {low:.4g} "
        f"to {float(probabilities[-1]):.1%} at {high:.4g}"
    )
    # The box starts 2 pixels above the curve, so that a line at probability 1 is not cut off.
    height = _HEIGHT + _TEXT_HEIGHT
    size = f'width="{_WIDTH}" height="{height}" viewBox="0 -2 {_WIDTH} {height}"'
    axes = f'<path d="M0 0V{_HEIGHT}H{_WIDTH}" fill="none" stroke="currentColor" opacity="0.4"/>'
    line = f'<polyline points="{" ".join(points)}" fill="none" stroke="#0072B2" stroke-width="2"/>'
    ends = _end_label(0, "start", low) + _end_label(_WIDTH, "end", high)
    return f'<svg role="img" aria-label="{label}" {size}>{axes}{line}{ends}</svg>'


def _end_label(x: int, anchor: str, score: float) -> str:
    style = f'font-size="10" fill="currentColor" text-anchor="{anchor}"'
    return f'<text y="{_HEIGHT + 12}" x="{x}" {style}>{score:.4g}</text>'
