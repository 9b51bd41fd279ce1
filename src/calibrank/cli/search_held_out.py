"""What `calibrank search` says of held-out queries: losses, thresholds, what is reachable."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from rich.table import Table as RichTable

from calibrank._internal.validation import Floats, Mask
from calibrank.cli import console
from calibrank.metrics import ECE, Estimate
from calibrank.search import (
    Cut,
    Judged,
    Reachable,
    Run,
    choose_cut,
    held_out_errors,
    held_out_losses,
    held_out_probabilities,
    loss_folds,
    reachable_cuts,
)
from calibrank.search.held_out import FOLDS, GAIN
from calibrank.search.rerank import Aim

_ECE = ECE().name
# Of a cut.
_ESTIMATES = ("precision", "recall", "answered")


class Counts(NamedTuple):
    """What of a run reaches a threshold."""

    documents: int
    kept: int
    queries: int
    answered: int
    """Queries of which some document does."""

    @classmethod
    def of(cls, run: Run, kept: Mask) -> "Counts":
        """Count what is kept of a run."""
        queries = len(np.unique(run.queries))
        return cls(len(run), int(kept.sum()), queries, len(np.unique(run.queries[kept])))


class HeldOut(NamedTuple):
    """Probabilities of documents under maps of other queries, what they are worth, and a cut."""

    probabilities: Floats
    losses: Mapping[str, Estimate]
    errors: Mapping[str, Estimate]
    cut: Cut | None
    reachable: Reachable | None = None
    """What can be had, where no threshold reaches the wanted precision."""

    @property
    def is_better(self) -> bool:
        """Whether the interval of the gain over a constant lies above 0."""
        return self.losses[GAIN].low > 0

    @property
    def lowest(self) -> float:
        """The lowest probability that is kept."""
        return 0.0 if self.cut is None else self.cut.lowest

    def warn(self, counts: Counts) -> None:
        """Warn where the map may be no better than a constant, or the cut keeps all or nothing.

        That it is worse is not said even of an interval below 0: of maps that are nearly flat, a
        third of the intervals are, by next to nothing.
        """
        value, low, high = self.losses[GAIN]
        if not self.is_better:
            threshold = "" if self.cut is None else " or on the threshold"
            console.warn(
                "On held-out queries the map may be no better than a constant: gain in log loss "
                f"{value:.4f} (95% interval by query {low:.4f} to {high:.4f}). Do not rely on its "
                f"differences between documents{threshold}; judge more queries, or use a better "
                "ranker."
            )
        if self.cut is None or self.cut.threshold is None or 0 < counts.kept < counts.documents:
            return
        reached = "every document reaches" if counts.kept else "no document reaches"
        console.warn(
            f"Under the map of all queries {reached} the threshold {self.cut.threshold:.3f}, which "
            "was chosen under maps of fewer queries: probabilities differ too little for a "
            "threshold. Judge more queries, or use a better ranker."
        )

    def to_dict(self) -> dict[str, Any]:
        """What --json prints."""
        metrics = {**self.losses, **self.errors}
        return {
            "metrics": {name: each._asdict() for name, each in metrics.items()},
            "held_out": {name: each._asdict() for name, each in self.losses.items()},
            "better_than_constant": self.is_better,
            "cut": None if self.cut is None else _cut_as_json(self.cut),
            "reachable": None if self.reachable is None else _reachable_as_json(self.reachable),
        }

    def print(self) -> None:
        """Print losses, errors and the threshold."""
        table = RichTable("metric", "value", "95% interval", title="Held-out queries")
        for name, estimate in {**self.losses, **self.errors}.items():
            ends = f"{estimate.low:.4f} to {estimate.high:.4f}"
            basis = "if calibrated" if name == _ECE else "by query"
            table.add_row(name, f"{estimate.value:.4f}", f"{ends} ({basis})")
        console.show(table)
        self.print_cut()

    def print_cut(self) -> None:
        """Print what the threshold does, or which precision can be had."""
        if self.cut is not None:
            console.state(sentence(self.cut))
        if self.reachable is not None:
            _print_reachable(self.reachable)


def evaluate_held_out(judged: Judged, aim: tuple[Aim, float] | None) -> HeldOut:
    """Evaluate maps of other queries, and choose a threshold on them if there is an aim."""
    probabilities = _predict_held_out(judged, FOLDS)
    # The loss of the candidate that was lowest would be too good: it was chosen by it.
    folds = loss_folds(judged.n_queries)
    of_losses = probabilities if folds == FOLDS else _predict_held_out(judged, folds)
    cut = None if aim is None else choose_cut(judged, probabilities, *aim)
    reachable = None
    if cut is not None and cut.threshold is None:
        reachable = reachable_cuts(judged, probabilities, cut.wanted)
    return HeldOut(
        probabilities,
        held_out_losses(judged, of_losses, folds),
        held_out_errors(judged, probabilities),
        cut,
        reachable,
    )


def _predict_held_out(judged: Judged, folds: int) -> Floats:
    with console.progress_bar("Held-out queries", judged.n_queries) as progress:
        return held_out_probabilities(judged, folds, progress)


def sentence(cut: Cut | None) -> str:
    """What a threshold does on held-out queries."""
    if cut is None:
        return "Probabilities of relevance, without a threshold."
    if cut.threshold is None:
        return f"No threshold reaches a {cut.aim} of {cut.wanted:.0%}: the answer is nothing."
    return (
        f"Documents with a probability of at least {cut.threshold:.3f}: precision "
        f"{_text(cut.precision)}, recall {_text(cut.recall)}, some answer for "
        f"{_text(cut.answered)} of the queries (judged documents of held-out queries, on which the "
        "threshold was chosen; 95% intervals by query)."
    )


def _text(estimate: Estimate) -> str:
    return f"{estimate.value:.1%} ({estimate.low:.1%} to {estimate.high:.1%})"


def _cut_as_json(cut: Cut) -> dict[str, Any]:
    estimates = {name: getattr(cut, name)._asdict() for name in _ESTIMATES}
    about = {"aim": cut.aim, "wanted": cut.wanted, "threshold": cut.threshold, "kept": cut.kept}
    return {**about, "top_k": cut.top_k, **estimates}


def _reachable_as_json(reachable: Reachable) -> dict[str, Any]:
    best = {name: _cut_as_json(getattr(reachable, name)) for name in reachable._fields[:3]}
    return {**best, "curve": [_cut_as_json(cut) for cut in reachable.curve]}


def _print_reachable(reachable: Reachable) -> None:
    """The best cut of each kind, and precision by how many queries get an answer."""
    table = RichTable("cut", "options", "precision", "recall", "queries answered")
    table.title = "What can be had (chosen on these queries: count on the lower ends)"
    best = {
        "by rank": reachable.by_rank,
        "by probability": reachable.by_probability,
        "by both": reachable.by_both,
    }
    by_answers = {f"{cut.answered.value:.0%} answered": cut for cut in reachable.curve}
    for name, cut in {**best, **by_answers}.items():
        # The options of `calibrank search apply` that make this cut.
        parts = [] if cut.top_k is None else [f"--top-k {cut.top_k}"]
        parts += [f"--threshold {cut.threshold:.3f}"] if cut.threshold else []
        cells = [_text(getattr(cut, each)) for each in _ESTIMATES]
        table.add_row(name, " ".join(parts) or "all documents", *cells)
    console.show(table)


def judged_rate(judged: Judged) -> float:
    """The fraction of judged documents that are relevant."""
    return float(judged.evidence.positive.sum() / judged.evidence.total.sum())


def page_data(run: str, judged: Judged, held_out: HeldOut, counts: Counts) -> dict[str, Any]:
    """What the page of `search fit` shows: metrics, the threshold, and one row per query."""
    cut = held_out.cut
    about: dict[str, Any] = {}
    if cut is not None:
        about = {"aim": cut.aim, "wanted": cut.wanted, "threshold": cut.threshold}
        for name in _ESTIMATES:
            # JSON has no NaN, so an unknown precision is None.
            about[name] = [None if np.isnan(value) else value for value in getattr(cut, name)]
    queries = []
    for query in np.unique(judged.queries).tolist():
        rows = judged.queries == query
        kept = rows & (held_out.probabilities >= (np.inf if cut is None else cut.lowest))
        queries.append(
            {
                "query": query,
                "documents": int(rows.sum()),
                "relevant": float(judged.labels[rows].sum()),
                "best": float(held_out.probabilities[rows].max()),
                "kept": int(kept.sum()),
                "kept_relevant": float(judged.labels[kept].sum()),
            }
        )
    return {
        "source": run,
        "rows": len(judged),
        "rate": judged_rate(judged),
        "written": counts._asdict(),
        "population": judged.population,
        "warning": judged.warning,
        "cut": about or None,
        "coverage": judged.coverage,
        "relevant": judged.relevant,
        "better": held_out.is_better,
        "metrics": {name: list(each) for name, each in held_out.losses.items()},
        "errors": {name: list(each) for name, each in held_out.errors.items()},
        "queries": sorted(queries, key=lambda each: -each["best"]),
    }
