"""Runs with judgements: options of `fit` and `rerank`, and maps fitted on judged documents."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from calibrank.cli.console import (
    UsageError,
    console,
    log,
    print_json,
    require_output,
    require_unused,
    shown,
)
from calibrank.errors import FitError
from calibrank.maps import PiecewiseMap
from calibrank.metrics import Estimate, LogLoss, LogLossGain, bootstrap
from calibrank.search import (
    Judged,
    Run,
    fit_judged,
    held_out_probabilities,
    judged_rows,
    read_qrels,
    read_run,
)
from calibrank.tabular.labels import Threshold, parse_rule

# A grade of a TREC or JSON file has no name of its own.
_GRADE = "grade"
# What trec_eval counts as relevant unless told otherwise.
_RELEVANT = "grade >= 1"

QrelsOption = Annotated[
    str | None,
    typer.Option(
        help="Judgements of search results: TREC qrels, BEIR .tsv, .json, or a table. TABLE is "
        "then a run: TREC, .json, .tsv or a table of query, document and score."
    ),
]
PoolOption = Annotated[
    list[str] | None,
    typer.Option(help="A run that the judged documents were pooled from; may be repeated."),
]
PoolDepthOption = Annotated[
    int | None,
    typer.Option(
        help="How many documents of each --pool run were pooled per query. Default: 100.", min=1
    ),
]
TopKOption = Annotated[
    int | None,
    typer.Option(
        "--top-k",
        help="Use only the first documents of each query of the run: those that are shown.",
        min=1,
    ),
]
_POOL_DEPTH = 100

USED_WITH_QRELS = frozenset(
    {"table", "out", "positive", "soft", "qrels", "pool", "pool_depth", "top_k"}
    | {"model_name", "date", "json"}
)
"""The parameters of `fit` that have an effect on a run with judgements."""


class JudgedRun(NamedTuple):
    """A run, and its judged documents."""

    run: Run
    judged: Judged


def read_judged(
    run_name: str,
    qrels: str,
    positive: str | None,
    pool: list[str] | None,
    depth: int | None,
    top_k: int | None,
    *,
    soft: bool,
) -> JudgedRun:
    """Read a run and its judgements, and print which documents a map will be for."""
    if not pool:
        require_unused("without --pool", {"--pool-depth": depth})
    if positive is not None and soft:
        raise UsageError(
            '--positive "grade >= 2" says which grades are relevant, --soft that they are a '
            "judge's probabilities: they must not both be given. Leave one out."
        )
    rule = None if soft else parse_rule(positive or _RELEVANT)
    if positive is None and not soft:
        log.print(
            f'Relevant is "{_RELEVANT}", as in trec_eval; --positive declares another rule, --soft '
            "a judge's probabilities.",
            highlight=False,
            soft_wrap=True,
        )
    run = read_run(run_name)
    grades = read_qrels(qrels, _grade_column(qrels, rule))
    pooled = [read_run(name) for name in pool or []]
    judged = judged_rows(run, grades, rule, pooled, depth or _POOL_DEPTH, top_k)
    log.print(
        f"The map is for {judged.population}: {len(judged):,} in {judged.n_queries:,} queries.",
        highlight=False,
        soft_wrap=True,
    )
    if judged.warning is not None:
        log.print(shown(judged.warning), style="yellow", highlight=False, soft_wrap=True)
    return JudgedRun(run if top_k is None else run.first(top_k), judged)


def _grade_column(qrels: str, rule: Threshold | None) -> str | None:
    """The column that the rule names; files without column names have only grades."""
    if rule is None or rule.column == _GRADE:
        return None
    if not qrels.lower().endswith((".parquet", ".pq", ".csv", ".tsv")):
        raise UsageError(
            f'--positive must be about the grade, as "grade >= 2", got column {rule.column!r}: '
            "these judgements have no named columns."
        )
    return rule.column


def require_qrels(pool: list[str] | None, depth: int | None, top_k: int | None) -> None:
    """Refuse a pool without judgements."""
    if pool:
        raise UsageError("--pool must go with --qrels, whose documents were pooled.")
    require_unused("without --qrels", {"--pool-depth": depth, "--top-k": top_k})


def fit_run(
    run_name: str,
    qrels: str,
    positive: str | None,
    pool: list[str] | None,
    depth: int | None,
    top_k: int | None,
    out: Path,
    model_name: str | None,
    date: str | None,
    soft: bool,
    json: bool,
) -> None:
    """Fit a map for new queries, save it and print how it was found."""
    require_output(out, run_name, qrels, *(pool or []))
    judged = read_judged(run_name, qrels, positive, pool, depth, top_k, soft=soft).judged
    out.parent.mkdir(parents=True, exist_ok=True)
    fitted = fit_judged(judged)
    fitted = replace(fitted, record=replace(fitted.record, model_name=model_name, date=date))
    fitted.save(out)
    held_out = _held_out_losses(judged)
    if json:
        about = {"out": str(out), "population": judged.population, "warning": judged.warning}
        losses = {name: dict(each._asdict()) for name, each in held_out.items()}
        print_json({**about, "queries": judged.n_queries, "held_out": losses, **fitted.to_dict()})
        return
    print_fit(fitted, judged)
    _print_held_out(held_out)
    console.print(f"[bold]Saved:[/] {shown(out)}")


def print_fit(fitted: PiecewiseMap, judged: Judged) -> None:
    """Print what the map was fitted on."""
    rate = judged.evidence.positive.sum() / judged.evidence.total.sum()
    console.print(
        f"[bold]{fitted.method}[/] fitted on {len(judged):,} documents of {judged.n_queries:,} "
        f"queries, {rate:.1%} relevant."
    )


def _held_out_losses(judged: Judged) -> dict[str, Estimate]:
    """The log loss of each query under maps of other queries, and its gain over a constant.

    The loss of the candidate that was lowest would be too good: it was chosen by it.
    """
    try:
        probabilities = held_out_probabilities(judged)
    except FitError:
        # Enough queries for a map, but too few for one that leaves a fifth of them out.
        return {}
    losses = {}
    for metric in (LogLoss(), LogLossGain()):
        estimate = bootstrap(metric, probabilities, judged.evidence, judged.queries)
        losses[metric.name] = estimate
    return losses


def _print_held_out(losses: dict[str, Estimate]) -> None:
    if not losses:
        console.print("Too few queries to hold some out: how good the map is, is not known.")
        return
    gain = losses["LogLossGain"]
    verdict = (
        "It is better than a constant" if gain.low > 0 else "It may be no better than a constant"
    )
    console.print(
        f"Log loss on held-out queries: [bold]{losses['LogLoss'].value:.4f}[/]. {verdict}: "
        f"lower by {gain.value:.4f} (95% interval by query {gain.low:.4f} to {gain.high:.4f}).",
        highlight=False,
        soft_wrap=True,
    )
