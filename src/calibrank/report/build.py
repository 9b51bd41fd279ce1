"""A report: a page that can be saved, or shown in a notebook."""

import html
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from calibrank._atomic import write_atomic
from calibrank._validation import IdsLike, Numbers
from calibrank.evidence import Evidence
from calibrank.maps import CalibrationMap
from calibrank.report.content import contents
from calibrank.report.explanations import BETTER, EXPLANATIONS
from calibrank.report.ledger import Ledger, make_ledger
from calibrank.report.provenance import fingerprint_rows, provenance, versions
from calibrank.report.rendering import RESULTS, render

_LOSS_WORDS = {
    "naive": "labels at their word",
    "ips": "labels over propensities (inverse propensity)",
    "impressions": "impressions over the policy's propensities",
    "positive_ips": "positives reweighted by propensity",
}


@dataclass(frozen=True, slots=True)
class Report:
    """One self-contained page of HTML, and the sentence it opens with."""

    headline: str
    page: str = field(repr=False)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the page, whole or not at all."""
        write_atomic(Path(path), self.page)

    def _repr_html_(self) -> str:
        """The page in a frame of its own, so that notebook and report cannot disturb each other."""
        look = "width:100%;height:80vh;border:1px solid #8888;border-radius:6px"
        page = html.escape(self.page)
        return f'<iframe title="calibrank report" sandbox="allow-scripts" style="{look}" srcdoc="{page}"></iframe>'


def report(
    fitted: CalibrationMap | None,
    scores: Numbers,
    labels: Numbers | Evidence,
    *,
    users: IdsLike | None = None,
    items: IdsLike | None = None,
    propensity: Numbers | None = None,
    segments: Mapping[str, IdsLike] | None = None,
    name: str = "arrays in memory",
) -> Report:
    """Evaluate a map on scores and labels as one page; without a map, Gaussian is fitted and cross-validated.

    `labels` are 0 or 1, or evidence such as `ips(labels, propensity)`. Users make intervals honest and lists possible.

    >>> import numpy as np
    >>> from calibrank import Platt
    >>> rng = np.random.default_rng(0)
    >>> scores = rng.normal(size=3000)
    >>> labels = (rng.random(3000) < 1 / (1 + np.exp(-scores))).astype(int)
    >>> made = report(Platt().fit(scores, labels), scores, labels, users=np.arange(3000) % 300)
    >>> made.headline.startswith("Of 100 items shown at 30 %")
    True
    """
    ledger = make_ledger(
        scores, labels, users=users, items=items, propensity=propensity, segments=segments
    )
    return report_of(ledger, fitted, name, fingerprint_rows(ledger), "calibrank.report.report(...)")


def results_report(overview: dict[str, Any], source: str, published: str, command: str) -> Report:
    """The page of a reproduction's results, as `calibrank.experiment.overview` sums them up."""
    about = {"source": source, "published": published, "versions": versions(), "command": command}
    words = {
        "ReleasedMCE": EXPLANATIONS["MCE"]
        + " As released: bins of under 0.01 % of the rows are passed over."
    }
    content = {**overview, **about, "explanations": {**EXPLANATIONS, **words}, "better": BETTER}
    headline = f"{overview['rows']:,} result rows under {len(overview['protocols'])} protocols"
    return Report(headline, render(f"Results: {source}", headline, content, RESULTS))


def report_of(
    ledger: Ledger, fitted: CalibrationMap | None, source: str, fingerprint: str, command: str
) -> Report:
    """The report of rows that are read already."""
    words = _LOSS_WORDS.get(ledger.evidence.kind, ledger.evidence.kind)
    words += ", propensities guessed from popularity" if ledger.guessed else ""
    about: dict[str, Any] = provenance(ledger, source, fingerprint, command, words)
    content = contents(ledger, fitted, about)
    first = content["headline"]["sentences"][0]["words"]
    lead = (
        f"{first}. {content['headline']['verdict']['title']} {content['headline']['door']['words']}"
    )
    return Report(first, render(f"Calibration report: {source}", lead, content))
