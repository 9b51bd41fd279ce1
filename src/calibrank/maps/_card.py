"""What a notebook shows of a map: a small card of HTML without style sheets or scripts."""

import html
from collections.abc import Mapping

from calibrank._validation import Floats
from calibrank.maps.describe import door_words
from calibrank.maps.record import FitRecord

_WIDTH, _HEIGHT = 220, 110


def card(
    method: str,
    shape: str,
    numbers: Mapping[str, tuple[float, float]],
    record: FitRecord,
    scores: Floats,
    probabilities: Floats,
) -> str:
    """Method, parameters with errors, where the base rate comes from, and the curve; every text is escaped.

    >>> record = FitRecord("naive", rows=10, positive=2.0, total=10.0, exact=True)
    >>> "&lt;b&gt;" in card("<b>", "A line.", {}, record, [0.0, 1.0], [0.0, 1.0])
    True
    """
    rows = "".join(
        f"<tr><td>{html.escape(name)}</td><td>{value:.6g}</td><td>&plusmn; {error:.2g}</td></tr>"
        for name, (value, error) in numbers.items()
    )
    fitted = f"Fitted on {record.rows:,} rows by {record.evidence} evidence, mean preference "
    words = [shape, f"{fitted}{record.positive / record.total:.2%}.", door_words(record)]
    lines = "".join(f"<div>{html.escape(line)}</div>" for line in words)
    return (
        f'<div style="display:flex;gap:1.5em;align-items:flex-start"><div style="max-width:32em">'
        f"<b>{html.escape(method)}</b>{lines}<table>{rows}</table></div>{_curve(scores, probabilities)}</div>"
    )


def _curve(scores: Floats, probabilities: Floats) -> str:
    low, high = float(scores[0]), float(scores[-1])
    across = [(float(score) - low) / (high - low or 1) * _WIDTH for score in scores]
    points = " ".join(f"{x:.1f},{_HEIGHT * (1 - float(p)):.1f}" for x, p in zip(across, probabilities, strict=True))
    label = (
        f"Probability from {float(probabilities[0]):.1%} at {low:.4g} to {float(probabilities[-1]):.1%} at {high:.4g}"
    )
    size = f'width="{_WIDTH}" height="{_HEIGHT + 16}" viewBox="0 -2 {_WIDTH} {_HEIGHT + 16}"'
    frame = f'<path d="M0 0V{_HEIGHT}H{_WIDTH}" fill="none" stroke="currentColor" opacity="0.4"/>'
    line = f'<polyline points="{points}" fill="none" stroke="#0072B2" stroke-width="2"/>'
    text = '<text y="{y}" x="{x}" font-size="10" fill="currentColor" text-anchor="{anchor}">{words}</text>'
    ends = "".join(
        text.format(y=_HEIGHT + 12, x=x, anchor=anchor, words=f"{score:.4g}")
        for x, anchor, score in ((0, "start", low), (_WIDTH, "end", high))
    )
    return f'<svg role="img" aria-label="{label}" {size}>{frame}{line}{ends}</svg>'
