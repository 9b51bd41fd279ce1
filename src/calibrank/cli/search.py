"""`calibrank search`: fit, apply and plan for the runs of search systems."""

from typing import Any, NamedTuple

import numpy as np

from calibrank._internal.atomic import write_atomic
from calibrank._internal.validation import Floats
from calibrank.anchoring import labels_needed
from calibrank.cli import console
from calibrank.cli.failures import UsageError
from calibrank.cli.judgements import percent, read_judged
from calibrank.cli.parse import Given
from calibrank.cli.rendering import print_base_rate, print_probabilities
from calibrank.errors import FitError
from calibrank.maps import FitRecord, load
from calibrank.maps.score_shift import ScoreComparison
from calibrank.metrics import DebiasedECE, Estimate, bootstrap
from calibrank.search import (
    Cut,
    Judged,
    Reachable,
    Run,
    choose_cut,
    encode_run,
    fit_judged,
    held_out_losses,
    held_out_probabilities,
    loss_folds,
    plan_judgements,
    plan_pairs,
    rate_moved,
    reachable_cuts,
    read_run,
    scores_moved,
)
from calibrank.search.held_out import FOLDS, GAIN, Aim
from calibrank.search.judges import SIZES, require_scores_alone
from calibrank.search.runs import require_layout

# Pairs to judge unless told otherwise.
_LABELS = 100


def fit(given: Given) -> None:
    """Fit a map for new queries to the judged documents of a run."""
    console.require_output(given.out, given.run, *given.qrels)
    aim: Aim = "recall" if given.precision is None else "precision"
    wanted = given.recall if given.precision is None else given.precision
    rules = (given.label, given.relevant, given.top_k)
    source, judged, _ = read_judged(given.run, given.qrels, *rules)
    fitted = fit_judged(judged)
    held_out = None
    try:
        held_out = _evaluate(judged, aim, wanted)
    except FitError as error:
        if wanted is not None:
            raise
        console.warn(f"How good the map is on other queries is not known: {error}")
    about: dict[str, Any] = {
        "out": str(given.out),
        "population": judged.population,
        "warning": judged.warning,
        "rows": len(judged),
        "queries": judged.n_queries,
        "map": fitted.digest,
    }
    if held_out is not None:
        _warn(held_out, fitted.predict(source.scores))
        about |= held_out._asdict() | {"better_than_constant": held_out.metrics[GAIN].low > 0}
    fitted.save(given.out)
    console.answer({**about, **fitted.to_dict()})
    print_base_rate(fitted.record)
    rate = judged.evidence.positive.sum() / judged.evidence.total.sum()
    console.state(
        f"[bold]{console.shown(fitted.method)}[/] fitted on {len(judged):,} documents of "
        f"{judged.n_queries:,} queries, {rate:.1%} relevant."
    )
    print_probabilities(fitted)
    if held_out is not None:
        _print(held_out)
    console.say_saved(given.out)


class _HeldOut(NamedTuple):
    """What a map is worth on queries that were held out, and a cut that was chosen on them."""

    metrics: dict[str, Estimate]
    cut: Cut | None
    reachable: Reachable | None
    """What can be had, where no threshold reaches the wanted precision."""


def _evaluate(judged: Judged, aim: Aim, wanted: float | None) -> _HeldOut:
    """Evaluate maps of other queries, and choose a threshold on them if there is an aim."""
    probabilities = _predict(judged, FOLDS)
    # The loss of the candidate that was lowest would be too good: it was chosen by it.
    folds = loss_folds(judged.n_queries)
    of_losses = probabilities if folds == FOLDS else _predict(judged, folds)
    losses = held_out_losses(judged, of_losses, folds)
    cut = None if wanted is None else choose_cut(judged, probabilities, aim, wanted)
    error = bootstrap(DebiasedECE(), probabilities, judged.evidence, judged.queries)
    reachable = None
    if cut is not None and cut.threshold is None:
        reachable = reachable_cuts(judged, probabilities, cut.wanted)
    return _HeldOut({**losses, DebiasedECE().name: error}, cut, reachable)


def _predict(judged: Judged, folds: int) -> Floats:
    with console.progress_bar("Held-out queries", judged.n_queries) as progress:
        return held_out_probabilities(judged, folds, progress)


def _warn(held_out: _HeldOut, probabilities: Floats) -> None:
    """Warn where the map may be no better than a constant, or the cut keeps all or nothing.

    That it is worse is not said even of an interval below 0: of maps that are nearly flat, a
    third of the intervals are, by next to nothing.
    """
    value, low, high = held_out.metrics[GAIN]
    if low <= 0:
        console.warn(
            "On held-out queries the map may be no better than a constant: gain in log loss "
            f"{value:.4f} (95% interval by query {low:.4f} to {high:.4f}). Do not rely on its "
            "differences between documents, or on a threshold; judge more queries, or use a "
            "better ranker."
        )
    threshold = None if held_out.cut is None else held_out.cut.threshold
    if threshold is None:
        return
    kept = probabilities >= threshold
    if kept.all() or not kept.any():
        console.warn(
            f"Under the map of all queries {'every' if kept.any() else 'no'} document reaches the "
            f"threshold {threshold:.3f}, which was chosen under maps of fewer queries: "
            "probabilities differ too little for a threshold. Judge more queries, or use a better "
            "ranker."
        )


def _print(held_out: _HeldOut) -> None:
    """Print losses, errors and what the threshold does, or which precision can be had."""
    rows = []
    for name, estimate in held_out.metrics.items():
        ends = f"{estimate.low:.4f} to {estimate.high:.4f} (by query)"
        rows.append([name, f"{estimate.value:.4f}", ends])
    console.print_table(("metric", "value", "95% interval"), rows, "Held-out queries")
    cut = held_out.cut
    if cut is not None and cut.threshold is not None:
        precision, recall, answered = _cells(cut)
        console.state(
            f"Documents with a probability of at least {cut.threshold:.3f}: precision {precision}, "
            f"recall {recall}, some answer for {answered} of the queries (judged documents of "
            "held-out queries, on which the threshold was chosen; 95% intervals by query)."
        )
    if cut is not None and held_out.reachable is not None:
        console.state(
            f"No threshold alone reaches a {cut.aim} of {cut.wanted:.1%}. What can be had:"
        )
        _print_reachable(held_out.reachable)


def _print_reachable(found: Reachable) -> None:
    """The best cut of each kind, and precision by how many queries get an answer."""
    cuts = {f"{cut.answered.value:.0%} answered": cut for cut in found.curve}
    best = {"by rank": found.by_rank, "by probability": found.by_probability}
    rows = []
    for name, cut in {**best, "by both": found.by_both, **cuts}.items():
        # The options of `calibrank search apply` that make this cut.
        parts = [] if cut.top_k is None else [f"--top-k {cut.top_k}"]
        parts += [f"--threshold {cut.threshold:.3f}"] if cut.threshold else []
        rows.append([name, " ".join(parts) or "all documents", *_cells(cut)])
    console.print_table(
        ("cut", "options of search apply", "precision", "recall", "queries answered"),
        rows,
        "Chosen on these queries: count on the lower ends",
    )


def _cells(cut: Cut) -> list[str]:
    return [percent(each) for each in (cut.precision, cut.recall, cut.answered)]


def apply(given: Given) -> None:
    """Write a run with probabilities of relevance for scores, and cut it by a threshold."""
    console.require_output(given.out, given.run, given.map, given.qrels)
    fitted = load(given.map)
    require_scores_alone(fitted)
    whole = read_run(given.run)
    require_layout(given.out, whole)
    source = whole if given.top_k is None else whole.first(given.top_k)
    found = _contradictions(fitted.record, source, given.run)
    population = fitted.record.population
    if given.qrels is not None:
        # With the rule and the depth that the map was fitted with.
        labels = [] if population is None else [population.relevant or "probability(grade)"]
        depth = None if population is None else population.top_k
        judged = read_judged(given.run, [given.qrels], labels, None, depth).judged
        moved = rate_moved(fitted, judged)
        found += [f"In {given.qrels} {moved}"] if moved else []
    for message in found:
        console.warn(message)
    probabilities = fitted.predict(source.scores)
    kept = probabilities >= (given.threshold or 0.0)
    write_atomic(given.out, encode_run(given.out, source, probabilities, kept))
    queries = len(np.unique(source.queries))
    answered = len(np.unique(source.queries[kept]))
    counts = {"documents": len(source), "kept": int(kept.sum())}
    counts |= {"queries": queries, "answered": answered}
    console.answer({"out": str(given.out), "warnings": found, **counts})
    if population is not None:
        console.state(f"The map: {console.shown(population.description)}")
    console.state(
        f"[bold]Wrote[/] {console.shown(given.out)}: {kept.sum():,} of {len(source):,} documents; "
        f"{answered:,} of {queries:,} queries get an answer."
    )


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
    moved = scores_moved(record, run)
    if population is None or population.run_scores is None:
        # Only the judged documents are known, which may be the top of each list.
        comparison = ScoreComparison(record)
        comparison.add(run.scores)
        moved = comparison.message if comparison.is_shifted else None
    if moved:
        found.append(f"In {name} {moved}")
    return found


def plan(given: Given) -> None:
    """Choose which pairs of query and document people should judge, and how many."""
    if given.out.suffix != ".csv":
        remedy = "Annotators fill in its column grade."
        raise UsageError("--out", "end in .csv", given.out, remedy)
    console.require_output(given.out, given.run, given.map)
    fitted = load(given.map)
    source = read_run(given.run)
    source = source if given.top_k is None else source.first(given.top_k)
    sizes = [size for size in SIZES if size < len(source)] or [len(source)]
    expected = plan_judgements(fitted, source, sizes)
    needed = None if given.error is None else labels_needed(expected, given.error)
    count = given.labels or needed or (_LABELS if given.error is None else sizes[-1])
    chosen = plan_pairs(fitted, source, min(count, len(source)), given.seed)
    write_atomic(given.out, chosen.to_csv().encode())
    about = {"out": str(given.out), "labels": len(chosen.pairs), "needed": needed}
    console.answer({**about, "plan": expected})
    for step in expected:
        console.state(
            f"With {step.labels:,} judged pairs, probabilities are off by {step.error:.3f} on "
            "average."
        )
    if given.error is not None:
        reach = f"{needed:,} judged pairs" if needed else f"More than {sizes[-1]:,} judged pairs"
        console.state(f"{reach} reach an error of {given.error:g}.")
    console.state("By simulation: one set of judgements may be off by a factor of two.")
    console.state(
        f"[bold]Wrote[/] {console.shown(given.out)}: {len(chosen.pairs):,} pairs of "
        f"{len(np.unique(chosen.pairs.queries)):,} queries. Fill in the column grade."
    )
