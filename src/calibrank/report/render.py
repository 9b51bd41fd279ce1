"""Render data as one HTML file that contains its style and script and loads nothing else."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import numpy as np

_SHARED_SCRIPTS = ("dom.js", "metrics.js", "charts.js", "layout.js")

REPORT_SCRIPTS = (
    *_SHARED_SCRIPTS,
    "headline.js",
    "reliability.js",
    "scores.js",
    "methods.js",
    "thresholds.js",
    "users.js",
    "segments.js",
    "report_start.js",
)
RERANK_SCRIPTS = (*_SHARED_SCRIPTS, "rerank.js")
MONITOR_SCRIPTS = (*_SHARED_SCRIPTS, "monitor.js", "monitor_start.js")

# Inside a script element the first three could end it or start a comment; the last two end a line
# of code in old JavaScript engines.
_ESCAPES = {
    "<": "\\u003c",
    ">": "\\u003e",
    "&": "\\u0026",
    "\u2028": "\\u2028",
    "\u2029": "\\u2029",
}

# Seven digits are more than the page shows, and halve the size of the data.
_SIGNIFICANT_DIGITS = 7

# Above this a float is not written as a whole number: JavaScript would lose digits.
_LARGEST_WHOLE = 1e15


def render(
    title: str, summary: str, data: dict[str, Any], scripts: Sequence[str] = REPORT_SCRIPTS
) -> str:
    """Render the page; a reader without JavaScript sees the `summary`."""
    style = _resource("style.css")
    code = "\n".join(_resource(name) for name in scripts)
    script = f'"use strict";\n(() => {{\n{code}\n}})();\n'
    parts = {
        "policy": _content_security_policy(script, style),
        "title": html.escape(title),
        "summary": html.escape(summary),
        "style": style,
        "script": script,
        "data": embed(data),
    }
    # One pass, so that a name in the data that looks like a placeholder stays as it is.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _resource("page.html"))


def embed(data: Any) -> str:
    r"""Serialize data as JSON that cannot break out of its script element.

    >>> embed({"name": "</script>"})
    '{"name":"\\u003c/script\\u003e"}'
    """
    text = json.dumps(plain(data), separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    for character, escaped in _ESCAPES.items():
        text = text.replace(character, escaped)
    # A lone surrogate has no UTF-8 encoding; it is replaced rather than failing the report.
    return text.encode("utf-8", "replace").decode()


def plain(value: Any) -> Any:
    """Convert to types that JSON has: arrays to lists, NaN and infinity to null.

    >>> plain({"a": np.array([1 / 3, np.nan]), "b": np.int64(2)})
    {'a': [0.3333333, None], 'b': 2}
    """
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, np.ndarray):
        return [plain(inner) for inner in value.tolist()]
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, np.generic):
        value = value.item()
    return _plain_float(value) if isinstance(value, float) else value


def _plain_float(value: float) -> float | int | None:
    if not math.isfinite(value):
        return None
    if value.is_integer() and abs(value) < _LARGEST_WHOLE:
        return int(value)
    return float(f"{value:.{_SIGNIFICANT_DIGITS}g}")


def _content_security_policy(script: str, style: str) -> str:
    """Allow only this script and this style, by hash, and no requests."""
    rules = (
        "default-src 'none'",
        f"script-src 'sha256-{_hash(script)}'",
        f"style-src 'sha256-{_hash(style)}'",
        "base-uri 'none'",
        "form-action 'none'",
    )
    return html.escape("; ".join(rules))


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _resource(name: str) -> str:
    return (files("calibrank.report") / "page" / name).read_text(encoding="utf-8")
