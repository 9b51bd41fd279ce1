"""Runs with judgements: options of `fit` and `rerank`, and maps fitted on judged documents."""

from collections.abc import Mapping
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
from calibrank.maps import PiecewiseMap
from calibrank.search import Judged, Run, fit_judged, judged_rows, read_qrels, read_run
from calibrank.tabular.labels import Threshold, parse_rule

# A grade of a TREC or JSON file has no name of its own.
_GRADE = "grade"

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
_POOL_DEPTH = 100


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
    *,
    soft: bool,
) -> JudgedRun:
    """Read a run and its judgements, and print which documents a map will be for."""
    if not pool:
        require_unused("without --pool", {"--pool-depth": depth})
    if (positive is None) == (not soft):
        raise UsageError(
            'judgements must be declared once: --positive "grade >= 2" says which grades are '
            "relevant, --soft that they are a judge's probabilities."
        )
    rule = None if positive is None else parse_rule(positive)
    run = read_run(run_name)
    grades = read_qrels(qrels, _grade_column(qrels, rule))
    pooled = [read_run(name) for name in pool or []]
    judged = judged_rows(run, grades, rule, pooled, depth or _POOL_DEPTH)
    log.print(
        f"The map is for {judged.population}: {len(judged):,} in {judged.n_queries:,} queries.",
        highlight=False,
        soft_wrap=True,
    )
    if judged.warning is not None:
        log.print(shown(judged.warning), style="yellow", highlight=False, soft_wrap=True)
    return JudgedRun(run, judged)


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


def require_no_other_options(given: Mapping[str, object]) -> None:
    """Refuse options that have no effect on a run with judgements."""
    named = [option for option, value in given.items() if value not in (None, [], False)]
    if named:
        raise UsageError(f"--qrels must not be given with {', '.join(named)}, which it ignores.")


def require_qrels(pool: list[str] | None, depth: int | None) -> None:
    """Refuse a pool without judgements."""
    if pool:
        raise UsageError("--pool must go with --qrels, whose documents were pooled.")
    require_unused("without --qrels", {"--pool-depth": depth})


def fit_run(
    run_name: str,
    qrels: str,
    positive: str | None,
    pool: list[str] | None,
    depth: int | None,
    out: Path,
    model_name: str | None,
    date: str | None,
    soft: bool,
    json: bool,
) -> None:
    """Fit a map for new queries, save it and print how it was found."""
    require_output(out, run_name, qrels, *(pool or []))
    judged = read_judged(run_name, qrels, positive, pool, depth, soft=soft).judged
    out.parent.mkdir(parents=True, exist_ok=True)
    fitted = fit_judged(judged)
    fitted = replace(fitted, record=replace(fitted.record, model_name=model_name, date=date))
    fitted.save(out)
    if json:
        about = {"out": str(out), "population": judged.population, "warning": judged.warning}
        print_json({**about, "queries": judged.n_queries, **fitted.to_dict()})
        return
    print_fit(fitted, judged)
    console.print(f"[bold]Saved:[/] {shown(out)}")


def print_fit(fitted: PiecewiseMap, judged: Judged) -> None:
    """Print the log loss on held-out queries, against that of a constant."""
    selection = fitted.record.selection
    if selection is None:
        return
    rate = judged.evidence.positive.sum() / judged.evidence.total.sum()
    console.print(
        f"[bold]{fitted.method}[/] fitted on {len(judged):,} documents of {judged.n_queries:,} "
        f"queries, {rate:.1%} relevant."
    )
    losses = {each.name: each.loss for each in selection.candidates}
    console.print(
        f"Log loss on held-out queries: [bold]{losses[selection.chosen]:.4f}[/] "
        f"({selection.chosen}), constant {losses['constant']:.4f}.",
        highlight=False,
    )
