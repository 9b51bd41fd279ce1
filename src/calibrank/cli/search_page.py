"""The data of the page of `calibrank search fit`: losses, the threshold, and one row per query."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from calibrank._internal.validation import Floats
from calibrank.metrics import Estimate
from calibrank.search import Cut, Judged


def _shown_cut(cut: Cut) -> dict[str, Any]:
    """The threshold for the page; JSON has no NaN, so an unknown precision is None."""
    shown: dict[str, Any] = {"aim": cut.aim, "wanted": cut.wanted, "threshold": cut.threshold}
    estimates = {"precision": cut.precision, "recall": cut.recall, "answered": cut.answered}
    for name, estimate in estimates.items():
        shown[name] = [None if np.isnan(value) else value for value in estimate]
    return shown


def page_data(
    run: str,
    judged: Judged,
    held_out: Floats,
    cut: Cut | None,
    losses: Mapping[str, Estimate],
    errors: Mapping[str, Estimate],
    written: Mapping[str, int],
    *,
    better: bool,
) -> dict[str, Any]:
    """What the report page shows: metrics, the threshold, and one row per query."""
    threshold = None if cut is None else cut.threshold
    queries = []
    for query in np.unique(judged.queries).tolist():
        rows = judged.queries == query
        kept = rows & (held_out >= (np.inf if threshold is None else threshold))
        queries.append(
            {
                "query": query,
                "documents": int(rows.sum()),
                "relevant": float(judged.labels[rows].sum()),
                "best": float(held_out[rows].max()),
                "kept": int(kept.sum()),
                "kept_relevant": float(judged.labels[kept].sum()),
            }
        )
    queries.sort(key=lambda each: -each["best"])
    return {
        "source": run,
        "rows": len(judged),
        "rate": float(judged.evidence.positive.sum() / judged.evidence.total.sum()),
        "written": dict(written),
        "population": judged.population,
        "warning": judged.warning,
        "cut": None if cut is None else _shown_cut(cut),
        "coverage": judged.coverage,
        "relevant": judged.relevant,
        "better": better,
        "metrics": {name: list(each) for name, each in losses.items()},
        "errors": {name: list(each) for name, each in errors.items()},
        "queries": queries,
    }
