"""Judged runs: how they are read, and how a judge compares with labels that are trusted more."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from calibrank.cli import console
from calibrank.cli.failures import UsageError
from calibrank.errors import DataError, FitError
from calibrank.maps import CalibrationMap, FitRecord
from calibrank.metrics import Estimate
from calibrank.search import (
    Agreement,
    Judge,
    Judged,
    Run,
    agreement,
    held_out_losses,
    judged_by,
    read_qrels,
    read_run,
)
from calibrank.search.held_out import CONSTANT_LOSS, GAIN, LOSS
from calibrank.search.runs import has_named_columns, read_propensities
from calibrank.tabular.labels import Soft, Threshold, declare

# A grade of a TREC or JSON file has no name of its own.
_GRADE = "grade"
# What trec_eval counts as relevant unless told otherwise.
_RELEVANT = "grade >= 1"
# Fewer queries have no interval.
_FEWEST_QUERIES = 5


class JudgedRun(NamedTuple):
    """A run, its judged documents, and who judged them."""

    run: Run
    judged: Judged
    judges: list[Judge]


def read_judged(
    run_name: str,
    qrels: Sequence[str],
    labels: Sequence[str] = (),
    relevant: float | None = None,
    top_k: int | None = None,
) -> JudgedRun:
    """Read a run and its judgements, and print which documents a map will be for."""
    rules = labels if relevant is None else [f"{_GRADE} >= {relevant!r}"]
    judges = [_read_judge(name, rule) for name in qrels for rule in rules or [_RELEVANT]]
    if not rules:
        console.say(
            f'Relevant is "{_RELEVANT}", as in trec_eval; --relevant 2 declares another rule, '
            "--label 'probability(grade)' a judge's probabilities."
        )
        for judge in judges:
            _require_whole(judge)
    run = read_run(run_name)
    # How likely each pair was chosen, if the one file of judgements says it.
    chances = read_propensities(qrels[0]) if len(qrels) == 1 else None
    if chances is not None:
        console.say(f"{qrels[0]}: pairs are weighted by the column 'propensity'.")
    try:
        judged = judged_by(run, judges, top_k=top_k, propensity=chances)
    except (DataError, FitError) as error:
        raise error.within(f"{run_name} and {', '.join(qrels)}") from None
    console.say(
        f"The map is for {judged.population}: {len(judged):,} in {judged.n_queries:,} queries."
    )
    if judged.warning is not None:
        console.warn(judged.warning)
    return JudgedRun(run if top_k is None else run.first(top_k), judged, judges)


def _read_judge(name: str, text: str) -> Judge:
    """Read the judgements of one source by one rule."""
    rule = declare(text)
    if not isinstance(rule, Threshold | Soft) or rule.texts:
        subject = "be a grade compared with a number, or probability(grade)"
        raise UsageError("--label", subject, rule)
    # Files without column names have only grades.
    if rule.column != _GRADE and not has_named_columns(name):
        raise UsageError(
            "--label",
            "be about the grade, as 'grade >= 2'",
            f"column {rule.column!r}: these judgements have no named columns",
        )
    grades = read_qrels(name, None if rule.column == _GRADE else rule.column)
    return Judge(name, grades, rule if isinstance(rule, Threshold) else None, rule.column)


def _require_whole(judge: Judge) -> None:
    """Refuse fractions where no rule was declared: they are a judge's probabilities, or means."""
    for (query, document), grade in judge.grades.items():
        if not grade.is_integer():
            raise DataError(
                f"{judge.name}: grades",
                "be whole numbers where no rule is declared",
                f"{grade:g} for query {query!r} and document {document!r}",
                "Declare the probabilities of a judge with --label 'probability(grade)', the "
                "lowest relevant grade with --relevant.",
            )


class Compared(NamedTuple):
    """A map of a judge's labels beside labels that are trusted more."""

    start: Mapping[str, Estimate]
    """Losses of the map before anchoring and of a constant, on the trusted labels."""
    agreement: list[Agreement]


def compare(fitted: CalibrationMap, found: JudgedRun, folders: Sequence[Path]) -> Compared | None:
    """Compare a map of judgements, and its judges if their files are found, with trusted labels."""
    population = fitted.record.population
    if population is None or not population.sources or found.judged.n_queries < _FEWEST_QUERIES:
        return None
    probabilities = fitted.predict(found.judged.scores)
    losses = held_out_losses(found.judged, probabilities, found.judged.n_queries)
    judges = _judges_of(fitted.record, folders)
    return Compared(losses, [agreement(judge, found.judges[0]) for judge in judges])


def _judges_of(record: FitRecord, folders: Sequence[Path]) -> list[Judge]:
    """The judges that a map was fitted on, as far as files of their names are in the folders."""
    judges = []
    for source in record.population.sources if record.population else ():
        files = [folder / source.name for folder in folders if (folder / source.name).is_file()]
        if files:
            judges.append(_read_judge(str(files[0]), source.rule))
        else:
            console.say(
                f"How far {source.name} agrees is not known: it is neither beside the map, the run "
                "nor the judgements."
            )
    return judges


def print_compared(compared: Compared, trusted: str) -> None:
    """Print the confusion of each judge in rates, and warn of what is no better than a constant."""
    rows = []
    for each in compared.agreement:
        estimates = (each.called, each.precision, each.recall, each.agreed)
        rows.append([each.judge, *map(percent, estimates)])
        low, high = 100 * each.gain.low, 100 * each.gain.high
        if each.is_worse_than_constant:
            console.warn(
                f"{each.judge} is worse than a constant: one answer for all pairs agrees with "
                f"{trusted} more often, by {-high:.0f} to {-low:.0f} points."
            )
        elif low <= 0:
            console.warn(
                f"{each.judge} may be no better than a constant: it agrees with {trusted} by "
                f"{low:.0f} to {high:.0f} points more often than one answer for all pairs."
            )
    if rows:
        about = compared.agreement[0]
        console.print_table(
            ("judge", "calls relevant", "of these are", "of relevant, calls", "agrees"),
            rows,
            f"Judges on {about.pairs:,} pairs of {trusted}, {about.relevant.value:.0%} relevant; "
            "95% intervals by query",
        )
    loss, constant, gain = [compared.start[name] for name in (LOSS, CONSTANT_LOSS, GAIN)]
    if gain.high < 0:
        console.warn(
            f"On {trusted} the map before anchoring is worse than a constant: log loss "
            f"{loss.value:.3f}, of a constant {constant.value:.3f} (95% interval of the difference "
            f"by query {-gain.high:.3f} to {-gain.low:.3f})."
        )


def percent(estimate: Estimate) -> str:
    """A fraction with its interval."""
    if math.isnan(estimate.value):
        return "none"
    return f"{estimate.value:.1%} ({estimate.low:.1%} to {estimate.high:.1%})"
