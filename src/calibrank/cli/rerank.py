"""`calibrank rerank`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table as RichTable

from calibrank._internal.atomic import write_all_atomic
from calibrank._internal.json import digest_of
from calibrank.cli.apply_run import apply_to_run
from calibrank.cli.console import (
    UsageError,
    console,
    print_json,
    require_different_outputs,
    require_fraction,
    require_output,
    require_unused,
)
from calibrank.cli.judgements import (
    Judgements,
    PoolDepthOption,
    PoolOption,
    RelevantOption,
    TopKOption,
    compare_with_constant,
    gain_as_json,
    hold_out,
    is_better,
    print_fit,
    read_judged,
    warn,
    warn_without_gain,
)
from calibrank.cli.options import JsonOption, PositiveOption, SoftOption
from calibrank.cli.rerank_page import page_data
from calibrank.cli.written_run import Written
from calibrank.metrics import ECE, Estimate
from calibrank.report.render import RERANK_SCRIPTS, render
from calibrank.search import (
    Cut,
    ExpectedQueryError,
    Judged,
    choose_cut,
    encode_run,
    fit_judged,
    held_out_errors,
    plan_queries,
)
from calibrank.search.rerank import Aim
from calibrank.search.write import require_layout

_ECE = ECE().name

OutOption = Annotated[
    Path,
    typer.Option(
        "--out",
        "-o",
        help="Where to write the calibrated run: a TREC file, or by its ending .json, .jsonl, "
        ".tsv, .csv or .parquet.",
    ),
]
MapOutOption = Annotated[
    Path | None,
    typer.Option("--map-out", help="Where to save the map (JSON)."),
]
RerankQrelsOption = Annotated[
    str | None,
    typer.Option(help="Judgements to fit a map on: TREC qrels, .tsv, .json or a table."),
]
MapOption = Annotated[
    Path | None,
    typer.Option("--map", help="Apply this map, which calibrank fit --qrels saved, instead."),
]
ThresholdOption = Annotated[
    float | None,
    typer.Option(help="With --map: keep documents with at least this probability."),
]
PrecisionOption = Annotated[
    float | None,
    typer.Option(help="Keep what reaches the threshold of this precision on held-out queries."),
]
RecallOption = Annotated[
    float | None,
    typer.Option(help="Keep what reaches the threshold of this recall on held-out queries."),
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
    out: OutOption,
    qrels: RerankQrelsOption = None,
    map_file: MapOption = None,
    positive: PositiveOption = None,
    relevant: RelevantOption = None,
    soft: SoftOption = False,
    precision: PrecisionOption = None,
    recall: RecallOption = None,
    threshold: ThresholdOption = None,
    pool: PoolOption = None,
    pool_depth: PoolDepthOption = None,
    top_k: TopKOption = None,
    map_out: MapOutOption = None,
    report: ReportOption = None,
    plan: PlanOption = False,
    json: JsonOption = False,
) -> None:
    """Turn the scores of a run into probabilities of relevance, and cut it by a threshold.

    With --qrels a map is fitted, and evaluated on held-out queries, with intervals by query. With
    --precision or --recall a threshold is chosen on these queries, and only documents that reach
    it are written; for a query without any, the answer is nothing. With --map, a saved map is
    applied to the run of new queries, and --threshold cuts it. The order of documents does not
    change.

    Example: calibrank rerank run.trec --qrels qrels.txt --relevant 2 --precision 0.7
    -o calibrated.trec
    """
    if map_file is not None:
        fitting = {
            "--qrels": qrels,
            "--positive": positive,
            "--relevant": relevant,
            "--soft": soft or None,
            "--precision": precision,
            "--recall": recall,
            "--pool": pool or None,
            "--pool-depth": pool_depth,
            "--map-out": map_out,
            "--report": report,
            "--plan": plan or None,
        }
        require_unused("with --map, which is fitted already", fitting)
        apply_to_run(run, map_file, threshold, top_k, out, json=json)
        return
    if qrels is None:
        raise UsageError("rerank must have judgements (--qrels) or a fitted map (--map), got none.")
    require_unused("without --map; use --precision or --recall", {"--threshold": threshold})
    aim = _aim(precision, recall)
    given = Judgements(qrels, positive, relevant, soft, pool or [], pool_depth, top_k)
    outputs = {"--out": out, "--map-out": map_out, "--report": report}
    require_different_outputs(outputs)
    for output in outputs.values():
        if output is not None:
            require_output(output, run, *given.files)
    source, judged = read_judged(run, given)
    require_layout(out, source)
    fitted = fit_judged(judged)
    held_out = hold_out(judged)
    losses = compare_with_constant(judged, held_out)
    errors = held_out_errors(judged, held_out)
    warn_without_gain(losses, has_threshold=aim is not None)
    cut = None if aim is None else choose_cut(judged, held_out, *aim)
    probabilities = fitted.predict(source.scores)
    kept = probabilities >= (0.0 if cut is None else cut.lowest)
    written = Written.of(source, kept)
    if cut is not None:
        _warn_if_extreme(cut, written)
    planned = plan_queries(judged) if plan else []
    contents: dict[Path, str | bytes] = {out: encode_run(out, source, probabilities, kept)}
    if map_out is not None:
        contents[map_out] = fitted.to_json()
    if report is not None:
        data = page_data(
            run, judged, held_out, cut, losses, errors, written, better=is_better(losses)
        )
        contents[report] = render(f"Reranking: {run}", _sentence(cut), data, RERANK_SCRIPTS)
    write_all_atomic(contents)
    if json:
        digest = digest_of(fitted.to_dict())
        result = _as_json(out, judged, losses, errors, cut, planned, written)
        print_json({"map": digest, **result})
        return
    print_fit(fitted, judged)
    _print(losses, errors, cut, planned)
    written.print(out)


def _warn_if_extreme(cut: Cut, written: Written) -> None:
    """Warn where the threshold of held-out queries keeps all or nothing of the run."""
    if cut.threshold is None or 0 < written.kept < written.documents:
        return
    reached = "every document reaches" if written.kept else "no document reaches"
    warn(
        f"Under the map of all queries {reached} the threshold {cut.threshold:.3f}, which was "
        "chosen under maps of fewer queries: probabilities differ too little for a threshold. "
        "Judge more queries, or use a better ranker."
    )


def _aim(precision: float | None, recall: float | None) -> tuple[Aim, float] | None:
    if precision is not None and recall is not None:
        raise UsageError("--precision and --recall must not both be given. Leave one out.")
    if precision is not None:
        require_fraction("--precision", precision)
        return "precision", precision
    if recall is not None:
        require_fraction("--recall", recall)
        return "recall", recall
    return None


def _sentence(cut: Cut | None) -> str:
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


def _print(
    losses: Mapping[str, Estimate],
    errors: Mapping[str, Estimate],
    cut: Cut | None,
    planned: list[ExpectedQueryError],
) -> None:
    table = RichTable("metric", "value", "95% interval", title="Held-out queries")
    for name, estimate in {**losses, **errors}.items():
        ends = f"{estimate.low:.4f} to {estimate.high:.4f}"
        basis = "if calibrated" if name == _ECE else "by query"
        table.add_row(name, f"{estimate.value:.4f}", f"{ends} ({basis})")
    console.print(table)
    if cut is not None:
        console.print(_sentence(cut), highlight=False)
    for step in planned:
        console.print(
            f"With {step.queries:,} judged queries, probabilities are off by {step.error:.3f} on "
            f"average (standard error of the simulation {step.standard_error:.3f}).",
            highlight=False,
        )
    if planned:
        console.print("For a single set of judgements, this may be off by a factor of two.")


def _as_json(
    out: Path,
    judged: Judged,
    losses: Mapping[str, Estimate],
    errors: Mapping[str, Estimate],
    cut: Cut | None,
    planned: list[ExpectedQueryError],
    written: Written,
) -> dict[str, Any]:
    return {
        "out": str(out),
        "written": dict(written._asdict()),
        "population": judged.population,
        "warning": judged.warning,
        "rows": len(judged),
        **gain_as_json(judged, losses),
        "metrics": {name: dict(each._asdict()) for name, each in {**losses, **errors}.items()},
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
