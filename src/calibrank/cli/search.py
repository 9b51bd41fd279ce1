"""`calibrank search`: fit, apply and plan for the runs of search systems."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from rich.table import Table as RichTable

from calibrank._internal.arguments import listed
from calibrank._internal.atomic import write_all_atomic, write_atomic
from calibrank._internal.validation import Floats, Mask
from calibrank.cli import console, options
from calibrank.cli.failures import UsageError
from calibrank.cli.judgements import (
    GradeOption,
    Judgements,
    PoolDepthOption,
    PoolOption,
    RelevantOption,
    TopKOption,
    read_judged,
)
from calibrank.cli.rendering import base_rate_lines, probability_table
from calibrank.cli.search_page import page_data
from calibrank.errors import DataError, FitError
from calibrank.maps import FitRecord, describe_population, load
from calibrank.maps.score_shift import ScoreComparison
from calibrank.metrics import ECE, Estimate
from calibrank.report.render import RERANK_SCRIPTS, render
from calibrank.search import (
    Cut,
    Judged,
    Run,
    choose_cut,
    encode_run,
    fit_judged,
    held_out_errors,
    held_out_losses,
    held_out_probabilities,
    loss_folds,
    plan_queries,
    read_run,
)
from calibrank.search.held_out import FOLDS, GAIN
from calibrank.search.rerank import Aim
from calibrank.search.write import require_layout

_ECE = ECE().name
_PANEL = "Threshold"

RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="Run of a search system: TREC, .json, .tsv or a table.")
]
QrelsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="QRELS...",
        help="Judgements: TREC qrels, .tsv, .json or a table. Labels of several judges are "
        "averaged.",
    ),
]
RunOutOption = Annotated[
    Path,
    options.option(
        "Where to write the run with probabilities: a TREC file, or by its ending .json, .jsonl, "
        ".tsv, .csv or .parquet.",
        "--out",
        "-o",
        panel=options.OUTPUT,
    ),
]
ReportOption = Annotated[
    Path | None,
    options.option(
        "Where to write a page with what the threshold keeps per query.", panel=options.OUTPUT
    ),
]
PrecisionOption = Annotated[
    float | None,
    options.option(
        "Choose the threshold that has this precision on held-out queries.", panel=_PANEL
    ),
]
RecallOption = Annotated[
    float | None,
    options.option("Choose the threshold that has this recall on held-out queries.", panel=_PANEL),
]
ThresholdOption = Annotated[
    float | None,
    options.option("Write only documents with at least this probability.", panel=_PANEL),
]
QrelsOption = Annotated[
    str | None,
    options.option(
        "With --precision or --recall: judgements of RUN to choose the threshold by.", panel=_PANEL
    ),
]


def search() -> None:
    """Probabilities of relevance for search runs: fit, apply, plan.

    Example: calibrank search fit run.trec qrels.txt --relevant 2 -o map.json
    """


def fit(
    run: RunArgument,
    qrels: QrelsArgument,
    relevant: RelevantOption = None,
    label: GradeOption = None,
    pool: PoolOption = None,
    pool_depth: PoolDepthOption = None,
    top_k: TopKOption = None,
    precision: PrecisionOption = None,
    recall: RecallOption = None,
    out: options.MapOut = Path("map.json"),
    report: ReportOption = None,
    json: options.Json = False,
) -> None:
    """Fit a map for new queries to the judged documents of a run.

    The map is evaluated on held-out queries, with intervals by query. With --precision or --recall
    a threshold is chosen on them, to be given to calibrank search apply.

    Example: calibrank search fit run.trec qrels.txt --relevant 2 --precision 0.7 -o map.json
    """
    aim = _aim(precision, recall)
    given = Judgements(qrels, label or (), relevant, pool, pool_depth, top_k)
    console.require_different_outputs({"--out": out, "--report": report})
    for output in (out, report):
        if output is not None:
            console.require_output(output, run, *given.files)
    source, judged, _ = read_judged(run, given)
    fitted = fit_judged(judged)
    try:
        held_out = _held_out(judged, aim)
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
            contents[report] = render(title, _sentence(held_out.cut), data, RERANK_SCRIPTS)
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
    console.screen.print(probability_table(fitted), highlight=False)
    if held_out is not None:
        held_out.print()
    console.state(f"[bold]Saved:[/] {console.shown(out)}")


def apply(
    map_file: options.Map,
    run: RunArgument,
    out: RunOutOption,
    threshold: ThresholdOption = None,
    precision: PrecisionOption = None,
    recall: RecallOption = None,
    qrels: QrelsOption = None,
    top_k: TopKOption = None,
    json: options.Json = False,
) -> None:
    """Write a run with probabilities of relevance for scores, and cut it by a threshold.

    For a query without a document that reaches the threshold, the answer is nothing. The order of
    documents does not change.

    Example: calibrank search apply map.json run.trec --threshold 0.4 -o calibrated.trec
    """
    aim = _require_threshold(threshold, _aim(precision, recall), qrels)
    console.require_output(out, run, map_file, qrels)
    fitted = load(map_file)
    if fitted.columns:
        raise DataError(
            f"{map_file} must be a map of scores alone, got one that uses "
            f"{listed(fitted.columns)}, which runs do not hold. Use calibrank apply on a table "
            "with these columns."
        )
    source = read_run(run)
    require_layout(out, source)
    found = _contradictions(fitted.record, source, run, top_k)
    for message in found:
        console.warn(message)
    source = source if top_k is None else source.first(top_k)
    probabilities = fitted.predict(source.scores)
    about: dict[str, Any] = {"out": str(out), "warnings": found}
    lowest = threshold or 0.0
    chosen = None
    if qrels is not None:
        chosen = _held_out(read_judged(run, _as_recorded(fitted.record, qrels)).judged, aim)
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
        console.state(_sentence(chosen.cut))
    console.state(
        f"[bold]Wrote[/] {console.shown(out)}: {counts.kept:,} of {counts.documents:,} documents; "
        f"{counts.answered:,} of {counts.queries:,} queries get an answer."
    )


def plan(
    run: RunArgument,
    qrels: QrelsArgument,
    relevant: RelevantOption = None,
    label: GradeOption = None,
    pool: PoolOption = None,
    pool_depth: PoolDepthOption = None,
    top_k: TopKOption = None,
    json: options.Json = False,
) -> None:
    """Estimate by simulation how many queries to judge.

    Example: calibrank search plan run.trec qrels.txt --relevant 2
    """
    given = Judgements(qrels, label or (), relevant, pool, pool_depth, top_k)
    planned = plan_queries(read_judged(run, given).judged)
    if json:
        console.print_json({"plan": [dict(step._asdict()) for step in planned]})
        return
    for step in planned:
        console.state(
            f"With {step.queries:,} judged queries, probabilities are off by {step.error:.3f} on "
            f"average (standard error of the simulation {step.standard_error:.3f})."
        )
    console.state("For a single set of judgements, this may be off by a factor of two.")


COMMANDS = {"fit": fit, "apply": apply, "plan": plan}
"""The commands of the group."""


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
            "metrics": {name: dict(each._asdict()) for name, each in metrics.items()},
            "held_out": {name: dict(each._asdict()) for name, each in self.losses.items()},
            "better_than_constant": self.is_better,
            "cut": None if self.cut is None else _cut_as_json(self.cut),
        }

    def print(self) -> None:
        """Print losses, errors and the threshold."""
        table = RichTable("metric", "value", "95% interval", title="Held-out queries")
        for name, estimate in {**self.losses, **self.errors}.items():
            ends = f"{estimate.low:.4f} to {estimate.high:.4f}"
            basis = "if calibrated" if name == _ECE else "by query"
            table.add_row(name, f"{estimate.value:.4f}", f"{ends} ({basis})")
        console.screen.print(table)
        if self.cut is not None:
            console.state(_sentence(self.cut))


def _held_out(judged: Judged, aim: tuple[Aim, float] | None) -> HeldOut:
    """Evaluate maps of other queries, and choose a threshold on them if there is an aim."""
    probabilities = _predict_held_out(judged, FOLDS)
    # The loss of the candidate that was lowest would be too good: it was chosen by it.
    folds = loss_folds(judged.n_queries)
    of_losses = probabilities if folds == FOLDS else _predict_held_out(judged, folds)
    return HeldOut(
        probabilities,
        held_out_losses(judged, of_losses, folds),
        held_out_errors(judged, probabilities),
        None if aim is None else choose_cut(judged, probabilities, *aim),
    )


def _predict_held_out(judged: Judged, folds: int) -> Floats:
    with console.counting_bar(judged.n_queries, "Held-out queries") as progress:
        return held_out_probabilities(judged, folds, progress)


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
            raise UsageError(
                f"--threshold must lie in [0, 1], got {threshold}. It is a probability."
            )
        if aim is not None:
            raise UsageError("--threshold must not go with --precision or --recall. Leave one out.")
    if aim is not None and qrels is None:
        raise UsageError(
            f"--{aim[0]} must go with --qrels, judgements of RUN to choose the threshold by. "
            "Or give a --threshold, which calibrank search fit chooses."
        )
    if aim is None:
        console.require_unused("without --precision or --recall", {"--qrels": qrels})
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
    comparison = ScoreComparison(record)
    comparison.add((run if top_k is None else run.first(top_k)).scores)
    if comparison.is_shifted:
        found.append(f"In {name} {comparison.message}")
    return found


def _aim(precision: float | None, recall: float | None) -> tuple[Aim, float] | None:
    if precision is not None and recall is not None:
        raise UsageError("--precision and --recall must not both be given. Leave one out.")
    if precision is not None:
        console.require_fraction("--precision", precision)
        return "precision", precision
    if recall is not None:
        console.require_fraction("--recall", recall)
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


def _cut_as_json(cut: Cut) -> dict[str, Any]:
    estimates = {"precision": cut.precision, "recall": cut.recall, "answered": cut.answered}
    about = {"aim": cut.aim, "wanted": cut.wanted, "threshold": cut.threshold, "kept": cut.kept}
    return {**about, **{name: dict(each._asdict()) for name, each in estimates.items()}}
