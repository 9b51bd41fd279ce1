"""Judged runs: options of `calibrank search` and `calibrank anchor`, and how they are read."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.table import Table as RichTable

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
from calibrank.tabular.labels import Soft, Threshold, declare, parse_rule

# A grade of a TREC or JSON file has no name of its own.
_GRADE = "grade"
# What trec_eval counts as relevant unless told otherwise.
_RELEVANT = "grade >= 1"
_POOL_DEPTH = 100
# Fewer queries have no interval.
_FEWEST_QUERIES = 5


class Judgements(NamedTuple):
    """The options that say what was judged, and which grades are relevant."""

    qrels: Sequence[str]
    labels: Sequence[str] = ()
    relevant: float | None = None
    pool: Sequence[str] = ()
    depth: int | None = None
    top_k: int | None = None

    @property
    def is_default(self) -> bool:
        """Whether nothing says what is relevant."""
        return not self.labels and self.relevant is None

    @property
    def rules(self) -> list[Threshold | Soft]:
        """The rules of relevance."""
        if self.relevant is not None:
            return [parse_rule(f"{_GRADE} >= {self.relevant!r}")]
        return [_rule(text) for text in self.labels or (_RELEVANT,)]

    def judges(self) -> list[Judge]:
        """Read every file by every rule."""
        return [_read_judge(name, rule) for name in self.qrels for rule in self.rules]


def _rule(text: str) -> Threshold | Soft:
    rule = declare(text)
    if isinstance(rule, Threshold | Soft):
        return rule
    raise UsageError("--label", "be a grade compared with a number, or probability(grade)", rule)


def _read_judge(name: str, rule: Threshold | Soft) -> Judge:
    """Read the judgements of one source."""
    grades = read_qrels(name, _grade_column(name, rule))
    return Judge(name, grades, rule if isinstance(rule, Threshold) else None, rule.column)


class JudgedRun(NamedTuple):
    """A run, its judged documents, and who judged them."""

    run: Run
    judged: Judged
    judges: list[Judge]


def read_judged(run_name: str, given: Judgements) -> JudgedRun:
    """Read a run and its judgements, and print which documents a map will be for."""
    judges = given.judges()
    if given.is_default:
        console.say(
            f'Relevant is "{_RELEVANT}", as in trec_eval; --relevant 2 declares another rule, '
            "--label 'probability(grade)' a judge's probabilities."
        )
        for judge in judges:
            _require_whole(judge)
    run = read_run(run_name)
    pooled = [read_run(name) for name in given.pool]
    # How likely each pair was chosen, if the one file of judgements says it.
    chances = read_propensities(given.qrels[0]) if len(given.qrels) == 1 else None
    if chances is not None:
        console.say(f"{given.qrels[0]}: pairs are weighted by the column 'propensity'.")
    depth = given.depth or _POOL_DEPTH
    try:
        judged = judged_by(run, judges, pooled, depth, given.top_k, chances)
    except (DataError, FitError) as error:
        raise error.within(f"{run_name} and {', '.join(given.qrels)}") from None
    console.say(
        f"The map is for {judged.population}: {len(judged):,} in {judged.n_queries:,} queries."
    )
    if judged.coverage:
        console.say(judged.coverage)
    if judged.warning is not None:
        console.warn(judged.warning)
    return JudgedRun(run if given.top_k is None else run.first(given.top_k), judged, judges)


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


def _grade_column(qrels: str, rule: Threshold | Soft) -> str | None:
    """The column that the rule names; files without column names have only grades."""
    if rule.column == _GRADE:
        return None
    if not has_named_columns(qrels):
        raise UsageError(
            "--label",
            "be about the grade, as 'grade >= 2'",
            f"column {rule.column!r}: these judgements have no named columns",
        )
    return rule.column


class Compared(NamedTuple):
    """A map of a judge's labels beside labels that are trusted more."""

    losses: Mapping[str, Estimate]
    """Of the map and of a constant, on the trusted labels."""
    agreements: list[Agreement]

    def to_dict(self) -> dict[str, Any]:
        """What --json prints."""
        judges = []
        for each in self.agreements:
            estimates = {k: v._asdict() for k, v in each._asdict().items() if k not in _COUNTED}
            about = {"judge": each.judge, "pairs": each.pairs, **estimates}
            judges.append({**about, "worse_than_constant": each.is_worse_than_constant})
        losses = {name: each._asdict() for name, each in self.losses.items()}
        return {"agreement": judges, "start": losses}

    def print(self, trusted: str) -> None:
        """Print the confusion of each judge, and warn of what is worse than a constant."""
        if self.agreements:
            _print_agreements(self.agreements, trusted)
        gain = self.losses[GAIN]
        if gain.high < 0:
            loss, constant = self.losses[LOSS].value, self.losses[CONSTANT_LOSS].value
            console.warn(
                f"On {trusted} the map before anchoring is worse than a constant: log loss "
                f"{loss:.3f}, of a constant {constant:.3f} (95% interval of the difference by "
                f"query {-gain.high:.3f} to {-gain.low:.3f})."
            )


_COUNTED = ("judge", "pairs")


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
            judges.append(_read_judge(str(files[0]), _rule(source.rule)))
        else:
            console.say(
                f"How far {source.name} agrees is not known: it is neither beside the map, the run "
                "nor the judgements."
            )
    return judges


def _print_agreements(agreements: Sequence[Agreement], trusted: str) -> None:
    """The confusion of each judge with trusted labels, in rates."""
    table = RichTable(
        "judge",
        "calls relevant",
        "of these are",
        "of relevant, calls",
        "agrees",
        title=f"Judges on {agreements[0].pairs:,} pairs of {console.shown(trusted)}, "
        f"{agreements[0].relevant.value:.0%} relevant",
        caption="95% intervals by query",
    )
    for each in agreements:
        cells = (each.called, each.precision, each.recall, each.agreed)
        table.add_row(console.shown(each.judge), *[_percent(cell) for cell in cells])
        low, high = 100 * each.gain.low, 100 * each.gain.high
        if each.is_worse_than_constant:
            console.warn(
                f"{each.judge} is worse than a constant: one answer for all pairs agrees with "
                f"{trusted} more often, by {-high:.0f} to {-low:.0f} points."
            )
        elif each.gain.low <= 0:
            console.warn(
                f"{each.judge} may be no better than a constant: it agrees with {trusted} by "
                f"{low:.0f} to {high:.0f} points more often than one answer for all pairs."
            )
    console.show(table)


def _percent(estimate: Estimate) -> str:
    if math.isnan(estimate.value):
        return "none"
    return f"{estimate.value:.0%} ({100 * estimate.low:.0f} to {estimate.high:.0%})"
