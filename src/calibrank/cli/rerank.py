"""`calibrank rerank`."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table as RichTable

from calibrank._atomic import write_atomic
from calibrank._validation import Floats
from calibrank.cli.console import (
    UsageError,
    console,
    print_json,
    require_different_outputs,
    require_fraction,
    require_output,
    shown,
)
from calibrank.cli.judgements import PoolDepthOption, PoolOption, TopKOption, print_fit, read_judged
from calibrank.cli.options import JsonOption, PositiveOption, SoftOption
from calibrank.metrics import ECE, ConstantLogLoss, DebiasedECE, Estimate, LogLoss, bootstrap
from calibrank.report.render import RERANK_SCRIPTS, render
from calibrank.search import (
    Cut,
    ExpectedQueryError,
    Judged,
    Run,
    choose_cut,
    fit_judged,
    held_out_probabilities,
    plan_queries,
)

# A calibrated map has an ECE above 0 by chance, the more so the fewer queries there are.
_METRICS = (LogLoss(), ConstantLogLoss(), ECE(), DebiasedECE())

OutOption = Annotated[
    Path,
    typer.Option("--out", "-o", help="Where to write the calibrated run (TREC format)."),
]
MapOutOption = Annotated[
    Path | None,
    typer.Option("--map-out", help="Where to save the map (JSON)."),
]
PrecisionOption = Annotated[
    float | None,
    typer.Option(help="Keep documents above a threshold for this precision."),
]
RecallOption = Annotated[
    float | None,
    typer.Option(help="Keep documents above a threshold for this recall."),
]
ReportOption = Annotated[
    Path | None,
    typer.Option("--report", help="Where to write a page with what the threshold keeps per query."),
]
PlanOption = Annotated[
    bool,
    typer.Option("--plan", help="Also estimate how many queries to judge, by simulation."),
]


def rerank(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Run: TREC, .json, .tsv or a table.")],
    qrels: Annotated[str, typer.Option(help="Judgements: TREC qrels, .tsv, .json or a table.")],
    out: OutOption,
    positive: PositiveOption = None,
    soft: SoftOption = False,
    precision: PrecisionOption = None,
    recall: RecallOption = None,
    pool: PoolOption = None,
    pool_depth: PoolDepthOption = None,
    top_k: TopKOption = None,
    map_out: MapOutOption = None,
    report: ReportOption = None,
    plan: PlanOption = False,
    json: JsonOption = False,
) -> None:
    """Turn the scores of a run into probabilities of relevance, and cut it by a threshold.

    The map and the threshold are estimated on held-out queries, with intervals by query. With
    --precision or --recall only documents that reach the threshold are written; for a query
    without any, the answer is nothing. The order of documents does not change.

    Example: calibrank rerank run.trec --qrels qrels.txt --positive "grade >= 2" --precision 0.7
    -o calibrated.trec
    """
    if precision is not None and recall is not None:
        raise UsageError("--precision and --recall must not both be given. Leave one out.")
    for option, value in {"--precision": precision, "--recall": recall}.items():
        if value is not None:
            require_fraction(option, value)
    outputs = {"--out": out, "--map-out": map_out, "--report": report}
    require_different_outputs(outputs)
    for written in outputs.values():
        if written is not None:
            require_output(written, run, qrels, *(pool or []))
    source, judged = read_judged(run, qrels, positive, pool, pool_depth, top_k, soft=soft)
    fitted = fit_judged(judged)
    held_out = held_out_probabilities(judged)
    estimates = _estimates(judged, held_out)
    cut = _cut(judged, held_out, precision, recall)
    probabilities = fitted.predict(source.scores)
    write_atomic(out, _as_trec(source, probabilities, cut))
    if map_out is not None:
        fitted.save(map_out)
    if report is not None:
        shown_data = _page(run, judged, held_out, cut, estimates)
        page = render(f"Reranking: {run}", _sentence(cut), shown_data, RERANK_SCRIPTS)
        write_atomic(report, page)
    planned = plan_queries(judged) if plan else []
    if json:
        print_json(_as_json(out, judged, estimates, cut, planned))
        return
    print_fit(fitted, judged)
    _print(estimates, cut, planned)
    console.print(f"[bold]Wrote[/] {shown(out)}", highlight=False)


def _cut(
    judged: Judged, held_out: Floats, precision: float | None, recall: float | None
) -> Cut | None:
    if precision is not None:
        return choose_cut(judged, held_out, "precision", precision)
    if recall is not None:
        return choose_cut(judged, held_out, "recall", recall)
    return None


def _estimates(judged: Judged, held_out: Floats) -> dict[str, Estimate]:
    """Metrics on held-out queries, with intervals by query."""
    estimates = {}
    for metric in _METRICS:
        estimates[metric.name] = bootstrap(metric, held_out, judged.evidence, judged.queries)
    return estimates


def _as_trec(run: Run, probabilities: Floats, cut: Cut | None) -> str:
    """The run with probabilities for scores, best first, without what the threshold cuts."""
    kept = np.ones(len(run), dtype=bool)
    if cut is not None:
        # Where no threshold reaches the aim, nothing is returned.
        kept = probabilities >= (np.inf if cut.threshold is None else cut.threshold)
    ranks = run.ranks
    _, first = np.unique(run.queries, return_index=True)
    # Queries stay in the order of the file.
    order_of_query = dict(zip(run.queries[np.sort(first)].tolist(), range(len(first)), strict=True))
    places = np.array([order_of_query[query] for query in run.queries.tolist()])
    lines = []
    for row in np.lexsort((ranks, places)).tolist():
        if kept[row]:
            pair = f"{run.queries[row]} Q0 {run.documents[row]}"
            lines.append(f"{pair} {ranks[row]} {probabilities[row]:.6f} calibrank\n")
    return "".join(lines)


def _sentence(cut: Cut | None) -> str:
    if cut is None:
        return "Probabilities of relevance, without a threshold."
    if cut.threshold is None:
        return f"No threshold reaches a {cut.aim} of {cut.wanted:.0%}: the answer is nothing."
    return (
        f"Documents with a probability of at least {cut.threshold:.3f}: precision "
        f"{_text(cut.precision)}, recall {_text(cut.recall)}, some answer for "
        f"{_text(cut.answered)} of the queries (held-out queries; 95% intervals by query)."
    )


def _text(estimate: Estimate) -> str:
    return f"{estimate.value:.1%} ({estimate.low:.1%} to {estimate.high:.1%})"


def _print(
    estimates: dict[str, Estimate], cut: Cut | None, planned: list[ExpectedQueryError]
) -> None:
    table = RichTable("metric", "value", "95% interval by query", title="Held-out queries")
    for name, estimate in estimates.items():
        table.add_row(name, f"{estimate.value:.4f}", f"{estimate.low:.4f} to {estimate.high:.4f}")
    console.print(table)
    if cut is not None:
        console.print(_sentence(cut), highlight=False)
    for step in planned:
        console.print(
            f"With {step.queries:,} judged queries, probabilities are off by {step.error:.3f} on "
            "average.",
            highlight=False,
        )


def _as_json(
    out: Path,
    judged: Judged,
    estimates: dict[str, Estimate],
    cut: Cut | None,
    planned: list[ExpectedQueryError],
) -> dict[str, Any]:
    return {
        "out": str(out),
        "population": judged.population,
        "warning": judged.warning,
        "queries": judged.n_queries,
        "documents": len(judged),
        "metrics": {name: dict(each._asdict()) for name, each in estimates.items()},
        "cut": None if cut is None else _cut_as_json(cut),
        "plan": [dict(step._asdict()) for step in planned],
    }


def _cut_as_json(cut: Cut) -> dict[str, Any]:
    return {
        "aim": cut.aim,
        "wanted": cut.wanted,
        "threshold": cut.threshold,
        "kept": cut.kept,
        "precision": dict(cut.precision._asdict()),
        "recall": dict(cut.recall._asdict()),
        "answered": dict(cut.answered._asdict()),
    }


def _shown_cut(cut: Cut) -> dict[str, Any]:
    """The threshold for the page; JSON has no NaN, so an unknown precision is None."""
    shown: dict[str, Any] = {"aim": cut.aim, "wanted": cut.wanted, "threshold": cut.threshold}
    estimates = {"precision": cut.precision, "recall": cut.recall, "answered": cut.answered}
    for name, estimate in estimates.items():
        shown[name] = [None if np.isnan(value) else value for value in estimate]
    return shown


def _page(
    run: str,
    judged: Judged,
    held_out: Floats,
    cut: Cut | None,
    estimates: dict[str, Estimate],
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
        "population": judged.population,
        "warning": judged.warning,
        "cut": None if cut is None else _shown_cut(cut),
        "metrics": {name: list(each) for name, each in estimates.items()},
        "queries": queries,
    }
