"""Judged runs: options of `calibrank search` and `calibrank anchor`, and how they are read."""

import math
from collections.abc import Mapping
from typing import Annotated, NamedTuple

from calibrank.cli import console, options
from calibrank.cli.failures import UsageError
from calibrank.errors import DataError, FitError
from calibrank.search import Judged, Run, judged_rows, read_qrels, read_run
from calibrank.search.runs import has_named_columns
from calibrank.tabular.labels import Soft, Threshold, declare, parse_rule

# A grade of a TREC or JSON file has no name of its own.
_GRADE = "grade"
# What trec_eval counts as relevant unless told otherwise.
_RELEVANT = "grade >= 1"
_POOL_DEPTH = 100

RelevantOption = Annotated[
    float | None,
    options.option(
        "The lowest relevant grade of the judgements. Default: 1, as in trec_eval.",
        panel=options.ROWS,
        metavar="GRADE",
    ),
]
GradeOption = Annotated[
    str | None,
    options.option(
        "What is relevant, by a rule: 'grade >= 2', or 'probability(grade)' for a judge's "
        "probabilities. Instead of --relevant.",
        "--label",
        panel=options.ROWS,
        metavar="RULE",
    ),
]
PoolOption = Annotated[
    list[str] | None,
    options.option(
        "A run that the judged documents were pooled from. May be repeated.",
        panel=options.ROWS,
        metavar="RUN",
    ),
]
PoolDepthOption = Annotated[
    int | None,
    options.option(
        "How many documents of each --pool run were judged per query. Default: 100.",
        panel=options.ROWS,
        min=1,
    ),
]
TopKOption = Annotated[
    int | None,
    options.option(
        "Use only the first documents of each query: those that are shown.",
        "--top-k",
        panel=options.ROWS,
        min=1,
    ),
]


class Judgements(NamedTuple):
    """The options that say what was judged, and which grades are relevant."""

    qrels: str
    label: str | None = None
    relevant: float | None = None
    pool: list[str] | None = None
    depth: int | None = None
    top_k: int | None = None

    @property
    def is_default(self) -> bool:
        """Whether nothing says what is relevant."""
        return self.label is None and self.relevant is None

    @property
    def rule(self) -> Threshold | None:
        """The rule of relevance; None where grades are a judge's probabilities."""
        if self.label is not None and self.relevant is not None:
            raise UsageError(
                "--label and --relevant",
                "not both be given: each says what is relevant",
                remedy="Leave one out.",
            )
        if self.relevant is not None:
            if not math.isfinite(self.relevant):
                raise UsageError(
                    "--relevant",
                    "be a finite number",
                    got=self.relevant,
                    remedy="It is the lowest relevant grade.",
                )
            return parse_rule(f"{_GRADE} >= {self.relevant!r}")
        rule = declare(self.label or _RELEVANT)
        if isinstance(rule, Threshold | Soft):
            return rule if isinstance(rule, Threshold) else None
        raise UsageError(
            "--label", "be a grade compared with a number, or probability(grade)", got=rule
        )

    @property
    def files(self) -> tuple[str, ...]:
        return (self.qrels, *(self.pool or ()))


class JudgedRun(NamedTuple):
    """A run, and its judged documents."""

    run: Run
    judged: Judged


def read_judged(run_name: str, given: Judgements) -> JudgedRun:
    """Read a run and its judgements, and print which documents a map will be for."""
    if not given.pool:
        console.require_unused("without --pool", {"--pool-depth": given.depth})
    rule = given.rule
    if given.is_default:
        console.say(
            f'Relevant is "{_RELEVANT}", as in trec_eval; --relevant 2 declares another rule, '
            "--label 'probability(grade)' a judge's probabilities."
        )
    run = read_run(run_name)
    grades = read_qrels(given.qrels, _grade_column(given.qrels, rule))
    if given.is_default:
        _require_whole(given.qrels, grades)
    pooled = [read_run(name) for name in given.pool or ()]
    try:
        judged = judged_rows(run, grades, rule, pooled, given.depth or _POOL_DEPTH, given.top_k)
    except (DataError, FitError) as error:
        raise type(error)(f"{run_name} and {given.qrels}: {error}") from None
    console.say(
        f"The map is for {judged.population}: {len(judged):,} in {judged.n_queries:,} queries."
    )
    if judged.coverage:
        console.say(judged.coverage)
    if judged.warning is not None:
        console.warn(judged.warning)
    return JudgedRun(run if given.top_k is None else run.first(given.top_k), judged)


def _require_whole(name: str, grades: Mapping[tuple[str, str], float]) -> None:
    """Refuse fractions where no rule was declared: they are a judge's probabilities, or means."""
    for (query, document), grade in grades.items():
        if not grade.is_integer():
            raise DataError(
                f"{name}: grades",
                "be whole numbers where no rule is declared",
                got=f"{grade:g} for query {query!r} and document {document!r}",
                remedy=(
                    "Declare the probabilities of a judge with --label "
                    "'probability(grade)', the lowest relevant grade with --relevant."
                ),
            )


def _grade_column(qrels: str, rule: Threshold | None) -> str | None:
    """The column that the rule names; files without column names have only grades."""
    if rule is None or rule.column == _GRADE:
        return None
    if not has_named_columns(qrels):
        raise UsageError(
            "--label",
            "be about the grade, as 'grade >= 2'",
            got=f"column {rule.column!r}: these judgements have no named columns",
        )
    return rule.column
