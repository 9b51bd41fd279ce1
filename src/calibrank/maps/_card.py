"""What a notebook shows of a map: a small card of HTML without style sheets or scripts."""

import html
from typing import TYPE_CHECKING

from calibrank._validation import Floats
from calibrank.maps.describe import describe_base_rate

if TYPE_CHECKING:
    from calibrank.maps.calibration_map import CalibrationMap

_WIDTH, _HEIGHT = 220, 110


def card(fitted: "CalibrationMap", scores: Floats) -> str:
    """Method, parameters with errors, where the base rate comes from, and the curve; every text is escaped.

    >>> from dataclasses import replace
    >>> from calibrank import MinMax
    >>> "&lt;b&gt;" in card(replace(MinMax().fit([0.0, 1.0], [0, 1]), method="<b>"), [0.0, 1.0])
    True
    """
    errors, record = fitted.standard_errors, fitted.record
    rows = "".join(
        f"<tr><td>{html.escape(name)}</td><td>{value:.6g}</td><td>&plusmn; {errors[name]:.2g}</td></tr>"
        for name, value in fitted.parameters.items()
    )
    fit = f"Fitted on {record.rows:,} rows by {record.evidence} evidence, mean preference "
    words = [
        fitted.description,
        f"{fit}{record.positive / record.total:.2%}.",
        describe_base_rate(record),
    ]
    lines = "".join(f"<div>{html.escape(line)}</div>" for line in words)
    return (
        f'<div style="display:flex;gap:1.5em;align-items:flex-start"><div style="max-width:32em">'
        f"<b>{html.escape(fitted.method)}</b>{lines}<table>{rows}</table></div>"
        f"{_curve(scores, fitted.predict(scores))}</div>"
    )


def _curve(scores: Floats, probabilities: Floats) -> str:
    low, high = float(scores[0]), float(scores[-1])
    across = [(float(score) - low) / (high - low or 1) * _WIDTH for score in scores]
    points = " ".join(
        f"{x:.1f},{_HEIGHT * (1 - float(p)):.1f}"
        for x, p in zip(across, probabilities, strict=True)
    )
    label = f"Probability from {float(probabilities[0]):.1%} at {low:.4g} to {float(probabilities[-1]):.1%} at {high:.4g}"
    size = f'width="{_WIDTH}" height="{_HEIGHT + 16}" viewBox="0 -2 {_WIDTH} {_HEIGHT + 16}"'
    frame = f'<path d="M0 0V{_HEIGHT}H{_WIDTH}" fill="none" stroke="currentColor" opacity="0.4"/>'
    line = f'<polyline points="{points}" fill="none" stroke="#0072B2" stroke-width="2"/>'
    text = '<text y="{y}" x="{x}" font-size="10" fill="currentColor" text-anchor="{anchor}">{words}</text>'
    ends = "".join(
        text.format(y=_HEIGHT + 12, x=x, anchor=anchor, words=f"{score:.4g}")
        for x, anchor, score in ((0, "start", low), (_WIDTH, "end", high))
    )
    return f'<svg role="img" aria-label="{label}" {size}>{frame}{line}{ends}</svg>'
