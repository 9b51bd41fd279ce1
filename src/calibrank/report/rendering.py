"""The page itself: one HTML file that holds its style, its script and its data, and may run nothing else."""

import base64
import hashlib
import html
import json
import math
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import numpy as np

_SHARED = ("dom.js", "charts.js", "frame.js")
REPORT = (
    *_SHARED,
    "headline.js",
    "reliability.js",
    "scores.js",
    "methods.js",
    "threshold.js",
    "explorer.js",
    "segments.js",
    "start.js",
)
RESULTS = (*_SHARED, "results.js", "results_start.js")
# Inside a script element these could end it, or begin a comment; in old engines the last two end a line of code.
_ESCAPES = {
    "<": "\\u003c",
    ">": "\\u003e",
    "&": "\\u0026",
    "\u2028": "\\u2028",
    "\u2029": "\\u2029",
}


def render(title: str, lead: str, content: dict[str, Any], scripts: Sequence[str] = REPORT) -> str:
    """The whole page; `lead` is what a reader without scripts sees."""
    style = _text("style.css")
    script = '"use strict";\n(() => {\n' + "\n".join(_text(name) for name in scripts) + "\n})();\n"
    parts = {
        "policy": _policy(script, style),
        "title": html.escape(title),
        "lead": html.escape(lead),
        "style": style,
        "script": script,
        "data": embed(content),
    }
    page = _text("page.html")
    pieces = page.split("{{")
    return pieces[0] + "".join(
        parts[name] + rest for name, rest in (piece.split("}}", 1) for piece in pieces[1:])
    )


def embed(content: Any) -> str:
    r"""Data as JSON that cannot leave its script element, whatever names it holds.

    >>> embed({"name": "</script>"})
    '{"name":"\\u003c/script\\u003e"}'
    """
    text = json.dumps(plain(content), separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    for character, escaped in _ESCAPES.items():
        text = text.replace(character, escaped)
    # Half a surrogate pair has no UTF-8: shown as the replacement character, rather than no report at all.
    return text.encode("utf-8", "replace").decode()


def plain(value: Any) -> Any:
    """Arrays as lists, numbers to seven digits, what is not a number as null.

    >>> plain({"a": np.array([1 / 3, np.nan]), "b": np.int64(2)})
    {'a': [0.3333333, None], 'b': 2}
    """
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, np.ndarray | list | tuple):
        return [
            plain(inner) for inner in (value.tolist() if isinstance(value, np.ndarray) else value)
        ]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return int(value) if value.is_integer() and abs(value) < 1e15 else float(f"{value:.7g}")
    return value


def _policy(script: str, style: str) -> str:
    """Only this script and this style may run, and nothing may be fetched."""
    marks = [
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for text in (script, style)
    ]
    rules = (
        "default-src 'none'",
        f"script-src 'sha256-{marks[0]}'",
        f"style-src 'sha256-{marks[1]}'",
    )
    return html.escape("; ".join((*rules, "base-uri 'none'", "form-action 'none'")))


def _text(name: str) -> str:
    return (files("calibrank.report") / "page" / name).read_text(encoding="utf-8")
