"""`calibrank search`: fit, apply and plan for the runs of search systems."""

from pathlib import Path
from typing import Any

import numpy as np

from calibrank._internal.atomic import write_all_atomic, write_atomic
from calibrank.anchoring import labels_needed
from calibrank.cli import console
from calibrank.cli.failures import UsageError
from calibrank.cli.judgements import Judgements, read_judged
from calibrank.cli.parse import Given
from calibrank.cli.rendering import base_rate_lines, probability_table
from calibrank.cli.search_held_out import (
    Counts,
    evaluate_held_out,
    judged_rate,
    page_data,
    sentence,
)
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

# Pairs to judge unless told otherwise.
_LABELS = 100


def fit(given: Given) -> None:
    """Fit a map for new queries to the judged documents of a run."""
    aim = _aim_of(given)
    judgements = Judgements(
        given.qrels, given.label, given.relevant, given.pool, given.pool_depth, given.top_k
    )
    console.require_different_outputs(given.out, "--report", given.report)
    for output in filter(None, (given.out, given.report)):
        console.require_output(output, given.run, *given.qrels, *given.pool)
    source, judged, _ = read_judged(given.run, judgements)
    fitted = fit_judged(judged)
    try:
        held_out = evaluate_held_out(judged, aim)
    except FitError as error:
        if aim is not None or given.report is not None:
            raise
        held_out = None
        console.warn(f"How good the map is on other queries is not known: {error}")
    contents: dict[Path, str | bytes] = {given.out: fitted.to_json()}
    about: dict[str, Any] = {
        "out": str(given.out),
        "population": judged.population,
        "warning": judged.warning,
        "rows": len(judged),
        "queries": judged.n_queries,
        "coverage": judged.coverage or None,
        "map": fitted.digest,
    }
    if held_out is not None:
        counts = Counts.of(source, fitted.predict(source.scores) >= held_out.lowest)
        held_out.warn(counts)
        about |= held_out.to_dict()
        if given.report is not None:
            data = page_data(given.run, judged, held_out, counts)
            title = f"Reranking: {given.run}"
            contents[given.report] = render(title, sentence(held_out.cut), data, RERANK_SCRIPTS)
    write_all_atomic(contents)
    console.answer({**about, **fitted.to_dict()})
    console.state(base_rate_lines(fitted.record))
    console.state(
        f"[bold]{console.shown(fitted.method)}[/] fitted on {len(judged):,} documents of "
        f"{judged.n_queries:,} queries, {judged_rate(judged):.1%} relevant."
    )
    console.show(probability_table(fitted))
    if held_out is not None:
        held_out.print()
    console.say_saved(given.out)


def apply(given: Given) -> None:
    """Write a run with probabilities of relevance for scores, and cut it by a threshold."""
    aim = _aim_of(given)
    console.require_output(given.out, given.run, given.map_file, given.qrels)
    fitted = load(given.map_file)
    require_scores_alone(fitted)
    whole = read_run(given.run)
    require_layout(given.out, whole)
    source = whole if given.top_k is None else whole.first(given.top_k)
    found = _contradictions(fitted.record, source, given.run)
    judged = None
    if given.qrels is not None:
        judged = read_judged(given.run, _as_recorded(fitted.record, given.qrels)).judged
        moved = rate_moved(fitted, judged)
        found += [f"In {given.qrels} {moved}"] if moved else []
    for message in found:
        console.warn(message)
    probabilities = fitted.predict(source.scores)
    chosen = None if judged is None or aim is None else evaluate_held_out(judged, aim)
    kept = probabilities >= (given.threshold or 0.0 if chosen is None else chosen.lowest)
    counts = Counts.of(source, kept)
    about: dict[str, Any] = {"out": str(given.out), "warnings": found, **counts._asdict()}
    if chosen is not None:
        about |= chosen.to_dict()
        chosen.warn(counts)
    write_atomic(given.out, encode_run(given.out, source, probabilities, kept))
    console.answer(about)
    if fitted.record.population is not None:
        console.state(f"The map: {console.shown(describe_population(fitted.record.population))}")
    if chosen is not None:
        chosen.print_cut()
    console.state(
        f"[bold]Wrote[/] {console.shown(given.out)}: {counts.kept:,} of {counts.documents:,} "
        f"documents; {counts.answered:,} of {counts.queries:,} queries get an answer."
    )


def plan(given: Given) -> None:
    """Choose which pairs of query and document people should judge, and how many."""
    if given.out.suffix != ".csv":
        remedy = "Annotators fill in its column grade."
        raise UsageError("--out", "end in .csv", given.out, remedy)
    console.require_output(given.out, given.run, given.map_file)
    fitted = load(given.map_file)
    source = read_run(given.run)
    source = source if given.top_k is None else source.first(given.top_k)
    sizes = [size for size in SIZES if size < len(source)] or [len(source)]
    expected = plan_judgements(fitted, source, sizes)
    needed = None if given.error is None else labels_needed(expected, given.error)
    count = given.labels or needed or (_LABELS if given.error is None else sizes[-1])
    count = min(count, len(source))
    chosen = plan_pairs(fitted, source, count, given.seed)
    write_atomic(given.out, chosen.to_csv().encode())
    steps = [step._asdict() for step in expected]
    console.answer({"out": str(given.out), "labels": count, "needed": needed, "plan": steps})
    for step in expected:
        console.state(
            f"With {step.labels:,} judged pairs, probabilities are off by {step.error:.3f} on "
            "average."
        )
    if given.error is not None:
        reach = f"{needed:,} judged pairs" if needed else f"More than {sizes[-1]:,} judged pairs"
        console.state(f"{reach} reach an error of {given.error:g}.")
    console.state(
        "By simulation: for a single set of judgements, it may be off by a factor of two."
    )
    console.state(
        f"[bold]Wrote[/] {console.shown(given.out)}: {len(chosen.pairs):,} pairs of "
        f"{len(np.unique(chosen.pairs.queries)):,} queries. Fill in the column grade."
    )


def _aim_of(given: Given) -> tuple[Aim, float] | None:
    """The wanted precision or recall, if any."""
    if given.precision is not None:
        return "precision", given.precision
    return None if given.recall is None else ("recall", given.recall)


def _as_recorded(record: FitRecord, qrels: str) -> Judgements:
    """Judgements with the rule and the depth that the map was fitted with."""
    population = record.population
    if population is None:
        return Judgements([qrels])
    label = population.relevant or "probability(grade)"
    return Judgements([qrels], [label], top_k=population.top_k)


def _contradictions(record: FitRecord, run: Run, name: str) -> list[str]:
    """What makes the documents of a run others than those that the map is for."""
    found = []
    population = record.population
    deepest = int(run.ranks.max())
    if population is None:
        found.append(
            "The map does not say which documents it is for: it was not fitted on a judged run. "
            "Fit one with calibrank search fit."
        )
    elif population.top_k is not None and deepest > population.top_k:
        found.append(
            f"The map is for the first {population.top_k:,} documents per query, and the run has "
            f"up to {deepest:,}: probabilities of the others are not calibrated. Use "
            f"--top-k {population.top_k}."
        )
    comparison = ScoreComparison(record)
    comparison.add(run.scores)
    moved = scores_moved(record, run)
    if moved or comparison.is_shifted:
        found.append(f"In {name} {moved or comparison.message}")
    return found
