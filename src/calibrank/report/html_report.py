"""A report as one self-contained HTML page that can be saved or shown in a notebook."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from calibrank._internal.atomic import write_atomic
from calibrank._internal.validation import IdsLike, Numbers
from calibrank.errors import DataError
from calibrank.evidence import Labels
from calibrank.maps import CalibrationMap
from calibrank.report.rows import ReportRows, rows_from_arrays
from calibrank.report.sections import page_data

_SHARED_SCRIPTS = ("dom.js", "metrics.js", "charts.js", "layout.js")

REPORT_SCRIPTS = (
    *_SHARED_SCRIPTS,
    "headline.js",
    "reliability.js",
    "scores.js",
    "metric_table.js",
    "segments.js",
    "report_start.js",
)
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


def fingerprint_files(files: Sequence[Path]) -> str:
    """Hash the bytes of files, in order."""
    digest = hashlib.sha256()
    # A hash of hashes: where one file ends and the next begins matters too.
    for file in files:
        with file.open("rb") as opened:
            digest.update(hashlib.file_digest(opened, "sha256").digest())
    return f"sha256:{digest.hexdigest()}"


def versions() -> dict[str, str]:
    """Return the versions of what computes the numbers."""
    from calibrank import __version__  # noqa: PLC0415  (at the top it would be a circular import)

    return {"calibrank": __version__, "Python": platform.python_version(), "numpy": np.__version__}


@dataclass(frozen=True, slots=True)
class Report:
    """One self-contained HTML page, its headline sentence and its numbers."""

    headline: str
    page: str = field(repr=False)
    data: dict[str, Any] = field(repr=False, default_factory=dict)
    """Everything that the page shows, as types that JSON has."""

    def save(self, path: str | PathLike[str]) -> None:
        """Write the page to a file, atomically."""
        write_atomic(Path(path), self.page)

    def _repr_html_(self) -> str:
        """Return the page inside a sandboxed frame, isolated from the notebook's own styles."""
        # Without allow-same-origin the page cannot reach the notebook, whatever its data hold.
        style = "width:100%;height:80vh;border:1px solid #8888;border-radius:6px"
        return (
            f'<iframe title="calibrank report" sandbox="allow-scripts" style="{style}" '
            f'srcdoc="{html.escape(self.page)}"></iframe>'
        )


def report(
    fitted: CalibrationMap,
    scores: Numbers,
    labels: Labels,
    columns: Any = None,
    *,
    users: IdsLike | None = None,
    items: IdsLike | None = None,
    name: str = "arrays in memory",
) -> Report:
    """Evaluate a map on scores and labels and return the result as one page.

    `labels` are 0 or 1, or evidence such as `ips(labels, propensity)`. `columns` is a mapping or a
    dataframe with the columns of the map's terms and any others to show calibration by. With
    `users`, intervals account for the dependence of a user's rows.

    >>> import numpy as np
    >>> from calibrank import Platt
    >>> rng = np.random.default_rng(0)
    >>> scores = rng.normal(size=3000)
    >>> labels = (rng.random(3000) < 1 / (1 + np.exp(-scores))).astype(int)
    >>> made = report(Platt().fit(scores, labels), scores, labels, users=np.arange(3000) % 300)
    >>> made.headline.startswith("The probabilities are off by")
    True
    """
    levels = fitted.level_columns
    rows = rows_from_arrays(
        scores, labels, users=users, items=items, columns=columns, levels=levels
    )
    return report_on_rows(rows, fitted, {"source": name, "command": "calibrank.report.report(...)"})


def report_on_rows(rows: ReportRows, fitted: CalibrationMap, source: dict[str, str]) -> Report:
    """Make the report of rows that are read already; `source` says where they come from."""
    if len(rows) < 2:
        raise DataError("the table", "hold at least 2 rows for a report", len(rows))
    about = {
        **source,
        "rows": rows.rows_in_table,
        "users": None if rows.users is None else len(rows.users.names),
        "items": None if rows.items is None else len(rows.items.names),
        "versions": versions(),
        "created": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }
    data = {"provenance": about, **page_data(rows, fitted)}
    headline = data["headline"]
    title = f"{headline['verdict']['error']} {headline['verdict']['title']}"
    sentence = headline["sentences"][0]["text"]
    summary = f"{title} {sentence}. {headline['base_rate_source']['text']}"
    page = render(f"Calibration report: {source['source']}", summary, data)
    return Report(title, page, plain(data))


def monitor_report(status: dict[str, Any], source: str, command: str) -> Report:
    """Make the page of a monitored map, from `calibrank.monitor.Status.to_dict`."""
    rows = sum(day["rows"] for day in status["days"])
    about = {"source": source, "versions": versions(), "command": command}
    data = {**status, "rows": rows, "metrics": {}, **about}
    headline = status["headline"]
    page = render(f"Monitor: {source}", headline, data, MONITOR_SCRIPTS)
    return Report(headline, page, plain(data))


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
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, float):
        return value
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
