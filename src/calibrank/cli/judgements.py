"""Runs with judgements: options of `fit` and `rerank`, and maps fitted on judged documents."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from calibrank._internal.validation import Floats
from calibrank.cli.console import (
    UsageError,
    console,
    counting_bar,
    log,
    print_json,
    require_output,
    require_unused,
    shown,
)
from calibrank.errors import DataError, FitError
from calibrank.maps import PiecewiseMap
from calibrank.metrics import Estimate
from calibrank.search import (
    Judged,
    Run,
    fit_judged,
    held_out_losses,
    held_out_probabilities,
    judged_rows,
    loss_folds,
    read_qrels,
    read_run,
)
from calibrank.search.held_out import CONSTANT_LOSS, FOLDS, GAIN, LOSS
from calibrank.search.runs import has_named_columns
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
RelevantOption = Annotated[
    float | None,
    typer.Option(
        help='With --qrels: the lowest relevant grade. 2 is short for --positive "grade >= 2".'
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
    {"table", "out", "positive", "relevant", "soft", "qrels", "pool", "pool_depth", "top_k"}
    | {"model_name", "date", "json"}
)
"""The parameters of `fit` that have an effect on a run with judgements."""


class Judgements(NamedTuple):
    """The options that say what was judged, and which grades are relevant."""

    qrels: str
    positive: str | None
    relevant: float | None
    soft: bool
    pool: list[str]
    depth: int | None
    top_k: int | None

    @property
    def rule(self) -> Threshold | None:
        """The rule of relevance; None where grades are a judge's probabilities."""
        given = {
            '--positive "grade >= 2"': self.positive is not None,
            "--relevant": self.relevant is not None,
            "--soft": self.soft,
        }
        named = [option for option, is_given in given.items() if is_given]
        if len(named) > 1:
            raise UsageError(
                f"{' and '.join(named)} must not both be given: each says what is relevant. "
                "Leave one out."
            )
        if self.soft:
            return None
        if self.relevant is not None:
            if not math.isfinite(self.relevant):
                raise UsageError(
                    f"--relevant must be a finite number, got {self.relevant}. It is the lowest "
                    "relevant grade."
                )
            return parse_rule(f"{_GRADE} >= {self.relevant!r}")
        return parse_rule(self.positive or _RELEVANT)

    @property
    def files(self) -> tuple[str, ...]:
        return (self.qrels, *self.pool)


class JudgedRun(NamedTuple):
    """A run, and its judged documents."""

    run: Run
    judged: Judged


def read_judged(run_name: str, given: Judgements) -> JudgedRun:
    """Read a run and its judgements, and print which documents a map will be for."""
    if not given.pool:
        require_unused("without --pool", {"--pool-depth": given.depth})
    rule = given.rule
    if given.positive is None and given.relevant is None and not given.soft:
        _say(
            f'Relevant is "{_RELEVANT}", as in trec_eval; --relevant 2 or --positive declares '
            "another rule, --soft a judge's probabilities."
        )
    run = read_run(run_name)
    grades = read_qrels(given.qrels, _grade_column(given.qrels, rule))
    if given.positive is None and given.relevant is None and not given.soft:
        _require_whole(given.qrels, grades)
    pooled = [read_run(name) for name in given.pool]
    depth = given.depth or _POOL_DEPTH
    try:
        judged = judged_rows(run, grades, rule, pooled, depth, given.top_k)
    except (DataError, FitError) as error:
        raise type(error)(f"{run_name} and {given.qrels}: {error}") from None
    _say(f"The map is for {judged.population}: {len(judged):,} in {judged.n_queries:,} queries.")
    if judged.coverage:
        _say(judged.coverage)
    if judged.warning is not None:
        warn(judged.warning)
    return JudgedRun(run if given.top_k is None else run.first(given.top_k), judged)


def warn(message: str) -> None:
    """Print a warning beside the results."""
    log.print(shown(message), style="yellow", highlight=False, soft_wrap=True)


def _say(message: str) -> None:
    log.print(shown(message), highlight=False, soft_wrap=True)


def _require_whole(name: str, grades: Mapping[tuple[str, str], float]) -> None:
    """Refuse fractions where no rule was declared: they are a judge's probabilities, or means."""
    for (query, document), grade in grades.items():
        if not grade.is_integer():
            raise DataError(
                f"{name}: grades must be whole numbers where no rule is declared, got {grade:g} "
                f"for query {query!r} and document {document!r}. Declare probabilities of a judge "
                "with --soft, the lowest relevant grade with --relevant."
            )


def _grade_column(qrels: str, rule: Threshold | None) -> str | None:
    """The column that the rule names; files without column names have only grades."""
    if rule is None or rule.column == _GRADE:
        return None
    if not has_named_columns(qrels):
        raise UsageError(
            f'--positive must be about the grade, as "grade >= 2", got column {rule.column!r}: '
            "these judgements have no named columns."
        )
    return rule.column


def require_qrels(
    pool: list[str] | None, depth: int | None, top_k: int | None, relevant: float | None
) -> None:
    """Refuse options about judgements without any."""
    if pool:
        raise UsageError("--pool must go with --qrels, whose documents were pooled.")
    given = {"--pool-depth": depth, "--top-k": top_k, "--relevant": relevant}
    require_unused("without --qrels", given)


def fit_run(
    run_name: str,
    given: Judgements,
    out: Path,
    model_name: str | None,
    date: str | None,
    json: bool,
) -> None:
    """Fit a map for new queries, save it and print how it was found."""
    require_output(out, run_name, *given.files)
    judged = read_judged(run_name, given).judged
    out.parent.mkdir(parents=True, exist_ok=True)
    fitted = fit_judged(judged)
    fitted = replace(fitted, record=replace(fitted.record, model_name=model_name, date=date))
    fitted.save(out)
    losses: dict[str, Estimate] = {}
    try:
        losses = compare_with_constant(judged)
        warn_without_gain(losses)
    except FitError as error:
        warn(f"How good the map is on other queries is not known: {error}")
    if json:
        about = {"out": str(out), "population": judged.population, "warning": judged.warning}
        print_json({**about, **gain_as_json(judged, losses), **fitted.to_dict()})
        return
    print_fit(fitted, judged)
    if losses:
        _print_held_out(losses)
    console.print(f"[bold]Saved:[/] {shown(out)}")


def print_fit(fitted: PiecewiseMap, judged: Judged) -> None:
    """Print what the map was fitted on."""
    rate = judged.evidence.positive.sum() / judged.evidence.total.sum()
    console.print(
        f"[bold]{fitted.method}[/] fitted on {len(judged):,} documents of {judged.n_queries:,} "
        f"queries, {rate:.1%} relevant."
    )


def is_better(losses: Mapping[str, Estimate]) -> bool:
    """Whether the interval of the gain over a constant lies above 0."""
    return losses[GAIN].low > 0


def warn_without_gain(losses: Mapping[str, Estimate], *, has_threshold: bool = False) -> None:
    """Warn where held-out queries do not show that a map is better than a constant.

    That it is worse is not said even of an interval below 0: of maps that are nearly flat, a third
    of the intervals are, by next to nothing.
    """
    if is_better(losses):
        return
    threshold = " or on the threshold" if has_threshold else ""
    warn(
        f"On held-out queries the map may be no better than a constant: {_gain(losses)}. Do not "
        f"rely on its differences between documents{threshold}; judge more queries, or use a "
        "better ranker."
    )


def _gain(losses: Mapping[str, Estimate]) -> str:
    value, low, high = losses[GAIN]
    return f"gain in log loss {value:.4f} (95% interval by query {low:.4f} to {high:.4f})"


def gain_as_json(judged: Judged, losses: Mapping[str, Estimate]) -> dict[str, object]:
    """The losses on held-out queries, and whether the map is better than a constant there."""
    held_out = {name: dict(each._asdict()) for name, each in losses.items()}
    better = is_better(losses) if losses else None
    about = {"queries": judged.n_queries, "coverage": judged.coverage or None}
    return {**about, "held_out": held_out, "better_than_constant": better}


def hold_out(judged: Judged, folds: int = FOLDS) -> Floats:
    """Probabilities under maps of other queries, with a progress bar: each fold takes a fit."""
    with counting_bar(judged.n_queries, "Held-out queries") as progress:
        return held_out_probabilities(judged, folds, progress)


def compare_with_constant(judged: Judged, known: Floats | None = None) -> dict[str, Estimate]:
    """The log loss of each query under maps of other queries, and its gain over a constant.

    The loss of the candidate that was lowest would be too good: it was chosen by it. `known` are
    probabilities of the usual folds, where these were needed anyway.
    """
    folds = loss_folds(judged.n_queries)
    if known is None or folds != FOLDS:
        known = hold_out(judged, folds)
    return held_out_losses(judged, known, folds)


def _print_held_out(losses: Mapping[str, Estimate]) -> None:
    verdict = "is better" if is_better(losses) else "may be no better"
    console.print(
        f"Log loss on held-out queries: [bold]{losses[LOSS].value:.4f}[/], of a constant "
        f"{losses[CONSTANT_LOSS].value:.4f}. It {verdict} than a constant: {_gain(losses)}.",
        highlight=False,
        soft_wrap=True,
    )
