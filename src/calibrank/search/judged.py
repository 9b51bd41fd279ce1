"""The judged documents of a run, and the population that a map fitted on them is for.

What is not judged is not irrelevant: such rows are left out, never counted as negatives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from calibrank._internal.arguments import instance, shown, whole
from calibrank._internal.validation import Floats, Ids, Indices, Mask, add_up, column
from calibrank.errors import DataError, FitError, Remedy, Setting
from calibrank.evidence import Evidence, impressions, soft_evidence
from calibrank.maps import JudgementSource, Population
from calibrank.search.runs import MOST_DOCUMENTS, Run, check_rows
from calibrank.tabular.labels import Threshold

Grades = Mapping[tuple[str, str], float]

# Quantiles of the scores of a run that a map keeps.
_SKETCH = 51


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """The judged documents of a run, as rows to fit on."""

    queries: Ids
    documents: Ids
    scores: Floats
    labels: Floats
    """1 for relevant, 0 for not; a judge's probabilities where they were declared."""
    evidence: Evidence
    population: str
    """Which documents a map fitted on these rows is for, in words."""
    warning: str | None = None
    """What the population leaves open, if anything."""
    relevant: str | None = None
    """The rule of relevance, e.g. "grade >= 2"; None for a judge's probabilities."""
    top_k: int | None = None
    """How many documents of each query were considered; None for all of the run."""
    sources: tuple[JudgementSource, ...] = ()
    """Whose judgements these are, where that was said."""
    run: Run | None = None
    """The documents considered, judged or not."""
    propensity: Floats | None = None
    """The probability with which each document was chosen to be judged, where it is known."""

    def __post_init__(self) -> None:
        check_rows(self)
        evidence = instance("evidence", self.evidence, Evidence, "E.g. impressions(labels).")
        column("evidence", evidence.total, len(self))
        object.__setattr__(self, "labels", column("labels", self.labels, len(self)))

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def n_queries(self) -> int:
        """The number of queries with a judged document."""
        return len(np.unique(self.queries))

    @property
    def ranks(self) -> Indices:
        """The rank of each document in its query, from 1: in the run, or else among the judged."""
        run = self.run or Run(self.queries, self.documents, self.scores)
        rank = dict(zip(run.pairs, run.ranks.tolist(), strict=True))
        judged = Run(self.queries, self.documents, self.scores)
        return np.array([rank[pair] for pair in judged.pairs], dtype=np.intp)

    @property
    def recorded_population(self) -> Population:
        """The population as a map keeps it."""
        known = Population(
            self.population, self.relevant, self.n_queries, self.top_k, sources=self.sources
        )
        if self.run is None:
            return known
        levels = np.linspace(0, 1, _SKETCH)
        return replace(
            known,
            run_scores=tuple(np.quantile(self.run.scores, levels).tolist()),
            effective_rows=effective_rows(self.run),
        )


def judged_rows(
    run: Run,
    grades: Grades,
    relevant: Threshold | None,
    top_k: int | None = None,
    propensity: Grades | None = None,
) -> Judged:
    """Keep the judged documents of a run, labelled by a threshold of their grades.

    Without a threshold, grades must be probabilities, such as a judge's. With `top_k`, only the
    first documents of each query of the run are kept, which a system shows; the map is for those.
    `propensity` is the probability with which each pair was chosen to be judged, as `search plan`
    writes it: each judged document then stands for those like it.
    """
    instance("run", run, Run, "Read one with read_run(name).")
    instance("grades", grades, Mapping, "Read them with read_qrels(name).")
    if relevant is not None:
        instance("relevant", relevant, Threshold, 'E.g. parse_rule("grade >= 2").')
    if top_k is not None:
        run = run.first(whole("top_k", top_k, 1, MOST_DOCUMENTS))
    which = "documents" if top_k is None else f"first {top_k:,} documents per query"
    judged = _values(run, grades)
    is_judged = ~np.isnan(judged)
    if not is_judged.any():
        raise DataError(
            "the run and the judgements",
            "share queries and documents",
            f"no judgement of the {which} of the run, e.g. of {run.pairs[0]}, and judgements of "
            f"others, e.g. of {next(iter(grades), None)}",
            "Check that ids are written alike.",
        )
    population, warning = _population(run, is_judged, which)
    rows = np.flatnonzero(is_judged)
    chances = None if propensity is None else _values(run.take(rows), propensity)
    if chances is not None and np.isnan(chances).any():
        raise DataError(
            "propensity",
            "be given for every judged pair",
            f"none for {run.pairs[rows[np.isnan(chances)][0]]}",
            "Judge the pairs of one plan, or leave the column out.",
        )
    if relevant is None:
        _require_probabilities(run, rows, judged[rows])
    labels = labels_of(judged[rows], relevant)
    _require_both_classes(labels, judged[rows], relevant)
    return Judged(
        run.queries[rows],
        run.documents[rows],
        run.scores[rows],
        labels,
        soft_evidence(impressions, labels, chances, None),
        population,
        warning,
        relevant=None if relevant is None else str(relevant),
        top_k=top_k,
        run=run,
        propensity=chances,
    )


def effective_rows(run: Run) -> float:
    """How many unrelated scores the scores of a run are worth, as those of one query are alike.

    Of ranks r over all n documents, with residual sums R by query: n times the variance of r over
    the mean square of R per document. It is n where queries do not differ.
    """
    ranks = np.argsort(np.argsort(run.scores, kind="stable")) / max(len(run) - 1, 1)
    residuals = ranks - ranks.mean()
    by_query = add_up(np.unique(run.queries, return_inverse=True)[1], residuals)
    inflation = float((by_query**2).sum() / max((residuals**2).sum(), 1e-300))
    return len(run) / max(inflation, 1.0)


def labels_of(grades: Floats, relevant: Threshold | None) -> Floats:
    """1 for relevant, 0 for not; probabilities as they are."""
    if relevant is None:
        return grades
    return relevant.labels({relevant.column: grades})[0].astype(np.float64)


def _values(run: Run, grades: Grades) -> Floats:
    """The grade of each row of a run, NaN where it was not judged."""
    return np.array([grades.get(pair, np.nan) for pair in run.pairs])


def _require_probabilities(run: Run, rows: Indices, grades: Floats) -> None:
    """Check that grades without a rule are a judge's probabilities."""
    wrong = np.flatnonzero((grades < 0) | (grades > 1))
    if len(wrong):
        row = rows[wrong[0]]
        query, document = str(run.queries[row]), str(run.documents[row])
        raise DataError(
            "a judge's probabilities",
            "lie in [0, 1]",
            (f"{grades[wrong[0]]:g} for query {shown(query)} and document {shown(document)}"),
            [
                "Divide percentages by 100.",
                ("Or declare the lowest relevant grade: ", Setting("relevant"), "."),
            ],
        )


def _require_both_classes(labels: Floats, grades: Floats, relevant: Threshold | None) -> None:
    """Check, before anything is fitted, that some documents are relevant and some are not."""
    if (labels > 0).any() and (labels < 1).any():
        return
    found = np.unique(grades)
    verdict = "all" if labels[0] else "none"
    rule = "" if relevant is None else f" ({relevant})"
    held = f"grade {found[0]:g}" if len(found) == 1 else f"grades {found[0]:g} to {found[-1]:g}"
    remedy: Remedy = "A map needs judgements of both kinds: judge more documents."
    if len(found) > 1:
        lowest = found[1] if labels[0] else found[-1]
        remedy = ("Declare another rule, such as ", Setting("relevant", f"{lowest:g}"), ".")
    raise FitError(
        "some judged documents",
        f"be relevant{rule} and some not",
        f"{verdict} of {len(labels):,} relevant, with {held}",
        remedy,
    )


def _population(run: Run, is_judged: Mask, which: str) -> tuple[str, str | None]:
    """Which documents a map is for, and what that leaves open."""
    # Queries without any judgement say nothing about how deep the others were judged.
    of_judged = np.isin(run.queries, run.queries[is_judged])
    in_judged = "" if of_judged.all() else " for queries with judgements"
    if is_judged[of_judged].all():
        return f"the {which} of this run{in_judged}, which are all judged", None
    population = f"judged documents among the {which} of this run"
    if which == "documents":
        population = "judged documents of this run"
    warning = (
        f"{is_judged.sum():,} of {of_judged.sum():,} documents{in_judged} are judged; "
        "the others are left out, not counted as irrelevant. Judged documents are a selection, "
        "usually with more relevant ones: use the map on documents such as the judged ones."
    )
    return population, warning


def require_judged(judged: object) -> None:
    """Check that an argument is what `judged_rows` returns."""
    instance("judged", judged, Judged, "Make it with judged_rows(...).")


def require_queries(judged: Judged, fewest: int) -> None:
    """Check that there are judged documents of so many queries."""
    if judged.n_queries < fewest:
        raise FitError(
            "the run",
            f"have {fewest} or more queries with judged documents",
            judged.n_queries,
            "Judge documents of more queries.",
        )
