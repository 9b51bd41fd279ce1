"""A report as one HTML page that can be saved or shown in a notebook."""

from __future__ import annotations

import hashlib
import html
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from calibrank._internal.atomic import write_atomic
from calibrank._internal.validation import IdsLike, Numbers
from calibrank.evidence import Evidence
from calibrank.maps import CalibrationMap
from calibrank.report.page_data import page_data
from calibrank.report.render import MONITOR_SCRIPTS, plain, render
from calibrank.report.rows import ReportRows, rows_from_arrays

_PACKAGES = ("numpy", "scipy", "pyarrow")


def fingerprint_files(files: Sequence[Path]) -> str:
    """Hash the bytes of files, in order."""
    digest = hashlib.sha256()
    # A hash of hashes: where one file ends and the next begins matters too.
    for file in files:
        with file.open("rb") as opened:
            digest.update(hashlib.file_digest(opened, "sha256").digest())
    return f"sha256:{digest.hexdigest()}"


def fingerprint_rows(rows: ReportRows) -> str:
    """Hash the scores and the evidence, for data that come from no file."""
    digest = hashlib.sha256()
    for column in (rows.scores, rows.evidence.positive, rows.evidence.total):
        digest.update(np.ascontiguousarray(column).tobytes())
    return f"sha256:{digest.hexdigest()}"


def versions() -> dict[str, str]:
    """Return the versions of calibrank, Python and the packages that compute the numbers."""
    from calibrank import __version__  # noqa: PLC0415  (at the top it would be a circular import)

    found = {"calibrank": __version__, "Python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


_EVIDENCE_DESCRIPTIONS = {
    "naive": "labels used as they are",
    "ips": "labels divided by propensities (inverse propensity)",
    "impressions": "impressions divided by the policy's propensities",
    "positive_ips": "positives reweighted by propensity",
}


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
    fitted: CalibrationMap | None,
    scores: Numbers,
    labels: Numbers | Evidence,
    columns: Any = None,
    *,
    users: IdsLike | None = None,
    items: IdsLike | None = None,
    propensity: Numbers | None = None,
    name: str = "arrays in memory",
) -> Report:
    """Evaluate a map on scores and labels and return the result as one page.

    Without a map, a Gaussian one is fitted and cross-validated. `labels` are 0 or 1, or evidence
    such as `ips(labels, propensity)`. `columns` is a mapping or a dataframe with the columns of the
    map's terms and any others to show calibration by. With `users`, intervals account for the
    dependence of a user's rows, and the page shows lists.

    >>> import numpy as np
    >>> from calibrank import Platt
    >>> rng = np.random.default_rng(0)
    >>> scores = rng.normal(size=3000)
    >>> labels = (rng.random(3000) < 1 / (1 + np.exp(-scores))).astype(int)
    >>> made = report(Platt().fit(scores, labels), scores, labels, users=np.arange(3000) % 300)
    >>> made.headline.startswith("The probabilities are off by")
    True
    """
    rows = rows_from_arrays(
        scores,
        labels,
        users=users,
        items=items,
        propensity=propensity,
        columns=columns,
        levels=() if fitted is None else fitted.level_columns,
    )
    command = "calibrank.report.report(...)"
    return report_on_rows(rows, fitted, name, fingerprint_rows(rows), command)


def report_on_rows(
    rows: ReportRows, fitted: CalibrationMap | None, source: str, fingerprint: str, command: str
) -> Report:
    """Make the report of rows that are read already; the other arguments are its provenance."""
    evidence = _EVIDENCE_DESCRIPTIONS.get(rows.evidence.kind, rows.evidence.kind)
    if rows.estimated_propensity:
        evidence += ", propensities estimated from popularity"
    about = {
        "source": source,
        "fingerprint": fingerprint,
        "rows": rows.rows_in_table,
        "users": None if rows.users is None else len(rows.users.names),
        "items": None if rows.items is None else len(rows.items.names),
        "evidence": evidence,
        "versions": versions(),
        "created": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": command,
    }
    data = page_data(rows, fitted, about)
    headline = data["headline"]
    title = f"{headline['verdict']['error']} {headline['verdict']['title']}"
    sentence = headline["sentences"][0]["text"].removesuffix(".")
    base_rate = headline["base_rate_source"]["text"]
    page = render(f"Calibration report: {source}", f"{title} {sentence}. {base_rate}", data)
    return Report(title, page, plain(data))


def monitor_report(status: dict[str, Any], source: str, command: str) -> Report:
    """Make the page of a monitored map, from `calibrank.monitor.Status.to_dict`."""
    rows = sum(day["rows"] for day in status["days"])
    about = {"source": source, "versions": versions(), "command": command}
    data = {**status, "rows": rows, "metrics": {}, **about}
    headline = status["headline"]
    page = render(f"Monitor: {source}", headline, data, MONITOR_SCRIPTS)
    return Report(headline, page, plain(data))
