"""`calibrank search`: fit, apply and plan for the runs of search systems."""

from pathlib import Path
from typing import Any

import numpy as np

from calibrank._internal.atomic import write_all_atomic, write_atomic
from calibrank.anchoring import labels_needed
from calibrank.cli import console
from calibrank.cli.failures import UsageError
from calibrank.cli.judgements import Judgements, read_judged
from calibrank.cli.rendering import base_rate_lines, probability_table
from calibrank.cli.search_held_out import Counts, aim_of, evaluate_held_out, sentence
from calibrank.cli.search_page import page_data
from calibrank.errors import FitError
from calibrank.maps import FitRecord, describe_population, load
from calibrank.maps.score_shift import ScoreComparison
from calibrank.report.render import RERANK_SCRIPTS, render
from calibrank.search import (
    Run,
    encode_run,
    fit_judged,
    plan_judgements,
    plan_pairs,
    rate_moved,
    read_run,
    scores_moved,
)
from calibrank.search.plan import SIZES, require_scores_alone
from calibrank.search.rerank import Aim
from calibrank.search.write import require_layout

_PANEL = "Threshold"
# Pairs to judge unless told otherwise.
_LABELS = 100


def fit(
    run: str,
    qrels: list[str],
    relevant: float | None,
    label: list[str] | None,
    pool: list[str] | None,
    pool_depth: int | None,
    top_k: int | None,
    precision: float | None,
    recall: float | None,
    out: Path,
    report: Path | None,
    json: bool,
) -> None:
    """Fit a map for new queries to the judged documents of a run."""
    aim = aim_of(precision, recall)
    given = Judgements(qrels, label or (), relevant, pool, pool_depth, top_k)
    console.require_different_outputs({"--out": out, "--report": report})
    for output in (out, report):
        if output is not None:
            console.require_output(output, run, *given.files)
    source, judged, _ = read_judged(run, given)
    fitted = fit_judged(judged)
    try:
        held_out = evaluate_held_out(judged, aim)
    except FitError as error:
        if aim is not None or report is not None:
            raise
        held_out = None
        console.warn(f"How good the map is on other queries is not known: {error}")
    out.parent.mkdir(parents=True, exist_ok=True)
    contents: dict[Path, str | bytes] = {out: fitted.to_json()}
    about: dict[str, Any] = {
        "out": str(out),
        "population": judged.population,
        "warning": judged.warning,
    }
    about |= {
        "rows": len(judged),
        "queries": judged.n_queries,
        "coverage": judged.coverage or None,
        "map": fitted.digest,
    }
    if held_out is not None:
        kept = fitted.predict(source.scores) >= held_out.lowest
        counts = Counts.of(source, kept)
        held_out.warn(counts)
        about |= held_out.to_dict()
        if report is not None:
            data = page_data(
                run,
                judged,
                held_out.probabilities,
                held_out.cut,
                held_out.losses,
                held_out.errors,
                counts._asdict(),
                better=held_out.is_better,
            )
            title = f"Reranking: {run}"
            contents[report] = render(title, sentence(held_out.cut), data, RERANK_SCRIPTS)
    write_all_atomic(contents)
    if json:
        console.print_json({**about, **fitted.to_dict()})
        return
    console.state(base_rate_lines(fitted.record))
    rate = judged.evidence.positive.sum() / judged.evidence.total.sum()
    console.state(
        f"[bold]{console.shown(fitted.method)}[/] fitted on {len(judged):,} documents of "
        f"{judged.n_queries:,} queries, {rate:.1%} relevant."
    )
    console.show(probability_table(fitted))
    if held_out is not None:
        held_out.print()
    console.state(f"[bold]Saved:[/] {console.shown(out)}")


def apply(
    map_file: Path,
    run: str,
    out: Path,
    threshold: float | None,
    precision: float | None,
    recall: float | None,
    qrels: str | None,
    top_k: int | None,
    json: bool,
) -> None:
    """Write a run with probabilities of relevance for scores, and cut it by a threshold."""
    aim = _require_threshold(threshold, aim_of(precision, recall), qrels)
    console.require_output(out, run, map_file, qrels)
    fitted = load(map_file)
    require_scores_alone(fitted)
    source = read_run(run)
    require_layout(out, source)
    found = _contradictions(fitted.record, source, run, top_k)
    judged = None
    if qrels is not None:
        judged = read_judged(run, _as_recorded(fitted.record, qrels)).judged
        moved = rate_moved(fitted, judged)
        found += [f"In {qrels} {moved}"] if moved else []
    for message in found:
        console.warn(message)
    source = source if top_k is None else source.first(top_k)
    probabilities = fitted.predict(source.scores)
    about: dict[str, Any] = {"out": str(out), "warnings": found}
    lowest = threshold or 0.0
    chosen = None
    if judged is not None and aim is not None:
        chosen = evaluate_held_out(judged, aim)
        lowest = chosen.lowest
        about |= chosen.to_dict()
    kept = probabilities >= lowest
    counts = Counts.of(source, kept)
    if chosen is not None:
        chosen.warn(counts)
    write_atomic(out, encode_run(out, source, probabilities, kept))
    if json:
        console.print_json({**about, **counts._asdict()})
        return
    if fitted.record.population is not None:
        console.state(f"The map: {console.shown(describe_population(fitted.record.population))}")
    if chosen is not None:
        chosen.print_cut()
    console.state(
        f"[bold]Wrote[/] {console.shown(out)}: {counts.kept:,} of {counts.documents:,} documents; "
        f"{counts.answered:,} of {counts.queries:,} queries get an answer."
    )


def plan(
    map_file: Path,
    run: str,
    labels: int | None,
    error: float | None,
    out: Path,
    top_k: int | None,
    seed: int,
    json: bool,
) -> None:
    """Choose which pairs of query and document people should judge, and how many."""
    if out.suffix != ".csv":
        remedy = "Annotators fill in its column grade."
        raise UsageError("--out", "end in .csv", out, remedy)
    if error is not None:
        console.require_fraction("--error", error)
    console.require_output(out, run, map_file)
    fitted = load(map_file)
    source = read_run(run)
    source = source if top_k is None else source.first(top_k)
    sizes = [size for size in SIZES if size < len(source)] or [len(source)]
    expected = plan_judgements(fitted, source, sizes)
    needed = None if error is None else labels_needed(expected, error)
    count = min(labels or needed or (_LABELS if error is None else sizes[-1]), len(source))
    chosen = plan_pairs(fitted, source, count, seed)
    write_atomic(out, chosen.to_csv().encode())
    if json:
        steps = [dict(step._asdict()) for step in expected]
        console.print_json({"out": str(out), "labels": count, "needed": needed, "plan": steps})
        return
    for step in expected:
        console.state(
            f"With {step.labels:,} judged pairs, probabilities are off by {step.error:.3f} on "
            "average."
        )
    if error is not None:
        reach = f"{needed:,} judged pairs" if needed else f"More than {sizes[-1]:,} judged pairs"
        console.state(f"{reach} reach an error of {error:g}.")
    console.state(
        "By simulation: for a single set of judgements, it may be off by a factor of two."
    )
    console.state(
        f"[bold]Wrote[/] {console.shown(out)}: {len(chosen.pairs):,} pairs of "
        f"{len(np.unique(chosen.pairs.queries)):,} queries. Fill in the column grade."
    )


def _as_recorded(record: FitRecord, qrels: str) -> Judgements:
    """Judgements with the rule and the depth that the map was fitted with."""
    population = record.population
    if population is None:
        return Judgements([qrels])
    label = population.relevant or "probability(grade)"
    return Judgements([qrels], [label], top_k=population.top_k)


def _require_threshold(
    threshold: float | None, aim: tuple[Aim, float] | None, qrels: str | None
) -> tuple[Aim, float] | None:
    if threshold is not None:
        if not 0 <= threshold <= 1:
            raise UsageError("--threshold", "lie in [0, 1]", threshold, "It is a probability.")
        if aim is not None:
            raise UsageError(
                "--threshold", "not go with --precision or --recall", remedy="Leave one out."
            )
    if aim is not None and qrels is None:
        raise UsageError(
            f"--{aim[0]}",
            "go with --qrels, judgements of RUN to choose the threshold by",
            remedy="Or give a --threshold, which calibrank search fit chooses.",
        )
    return aim


def _contradictions(record: FitRecord, run: Run, name: str, top_k: int | None) -> list[str]:
    """What makes the documents of a run others than those that the map is for."""
    found = []
    population = record.population
    deepest = int(run.ranks.max())
    used = deepest if top_k is None else min(top_k, deepest)
    if population is None:
        found.append(
            "The map does not say which documents it is for: it was not fitted on a judged run. "
            "Fit one with calibrank search fit."
        )
    elif population.top_k is not None and used > population.top_k:
        found.append(
            f"The map is for the first {population.top_k:,} documents per query, and the run has "
            f"up to {used:,}: probabilities of the others are not calibrated. Use "
            f"--top-k {population.top_k}."
        )
    used_run = run if top_k is None else run.first(top_k)
    comparison = ScoreComparison(record)
    comparison.add(used_run.scores)
    moved = scores_moved(record, used_run)
    if moved or comparison.is_shifted:
        found.append(f"In {name} {moved or comparison.message}")
    return found
