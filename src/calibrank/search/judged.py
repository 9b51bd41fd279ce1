"""The judged documents of a run, and the population that a map fitted on them is for.

What is not judged is not irrelevant: such rows are left out, never counted as negatives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from calibrank._internal.arguments import instance, shown, whole
from calibrank._internal.validation import (
    Floats,
    Ids,
    Indices,
    Mask,
    add_up,
    column,
    ids,
    require_scores,
)
from calibrank.errors import DataError, FitError, Remedy, Setting
from calibrank.evidence import Evidence, impressions, soft_evidence
from calibrank.maps import JudgementSource, Population
from calibrank.search.runs import MOST_DOCUMENTS, Run
from calibrank.tabular.labels import Threshold

Grades = Mapping[tuple[str, str], float]

# Quantiles of the scores of a run that a map keeps.
_SKETCH = 51
# Depths at which the fraction of judged documents is said.
_DEPTHS = (10, 100)


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
    coverage: str = ""
    """Queries that say nothing or little: not judged, not in the run, none relevant."""
    sources: tuple[JudgementSource, ...] = ()
    """Whose judgements these are, where that was said."""
    run: Run | None = None
    """The documents considered, judged or not."""
    propensity: Floats | None = None
    """The probability with which each document was chosen to be judged, where it is known."""

    def __post_init__(self) -> None:
        scores = column("scores", self.scores)
        require_scores(scores)
        evidence = instance("evidence", self.evidence, Evidence, "E.g. impressions(labels).")
        column("evidence", evidence.total, len(scores))
        object.__setattr__(self, "scores", scores)
        object.__setattr__(self, "labels", column("labels", self.labels, len(scores)))
        for name in ("queries", "documents"):
            object.__setattr__(self, name, ids(name, getattr(self, name), len(scores)))

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
        pairs = zip(run.queries.tolist(), run.documents.tolist(), strict=True)
        rank = dict(zip(pairs, run.ranks.tolist(), strict=True))
        judged = zip(self.queries.tolist(), self.documents.tolist(), strict=True)
        return np.array([rank[pair] for pair in judged], dtype=np.intp)

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
    pool: Sequence[Run] = (),
    depth: int = 100,
    top_k: int | None = None,
) -> Judged:
    """Keep the judged documents of a run, labelled by a threshold of their grades.

    Without a threshold, grades must be probabilities, such as a judge's. With the runs that made
    the `pool`, each judged document of their first `depth` stands for those like it: documents that
    as many of these runs returned, of which a fraction was judged. The map is then for all
    documents that the pool reached. With `top_k`, only the first documents of each query of the run
    are kept, which a system shows; the map is for those.
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
            f"no judgement of the {which} of the run{_different_ids(run, grades)}",
            "Check that ids are written alike.",
        )
    kept, propensity = is_judged, None
    depth = whole("depth", depth, 1, MOST_DOCUMENTS)
    if _require_pool(pool):
        reached = _reached(run, pool, depth)
        kept = is_judged & (reached > 0)
        if not kept.any():
            raise DataError(
                "the pool",
                "hold judged documents of the run",
                f"none in its first {depth}",
                ("Check ", Setting("pool"), " and ", Setting("pool_depth"), "."),
            )
        propensity = _judged_fraction(reached, is_judged)[kept]
        population, warning = _pool_known(is_judged, reached, which, depth)
    else:
        population, warning = _pool_unknown(run, is_judged, which)
    rows = np.flatnonzero(kept)
    if relevant is None:
        _require_probabilities(run, rows, judged[rows])
    labels = _labels(judged[rows], relevant)
    _require_both_classes(labels, judged[rows], relevant)
    return Judged(
        run.queries[rows],
        run.documents[rows],
        run.scores[rows],
        labels,
        soft_evidence(impressions, labels, propensity, None),
        population,
        warning,
        relevant=None if relevant is None else str(relevant),
        top_k=top_k,
        coverage=_coverage(run.queries, run.queries[rows], labels, grades),
        run=run,
        propensity=propensity,
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


def _require_pool(pool: object) -> bool:
    """Whether runs of a pool are given."""
    if isinstance(pool, str | bytes) or not isinstance(pool, Sequence):
        raise DataError("pool", "be a list of runs", shown(pool), "Read them with read_run.")
    for run in pool:
        instance("pool", run, Run, "Read its runs with read_run(name).")
    return bool(pool)


def _values(run: Run, grades: Grades) -> Floats:
    """The grade of each row of a run, NaN where it was not judged."""
    pairs = zip(run.queries.tolist(), run.documents.tolist(), strict=True)
    return np.array([grades.get(pair, np.nan) for pair in pairs])


def _different_ids(run: Run, grades: Grades) -> str:
    """An example of ids that are not those of the other file, in words."""
    judged: dict[str, str] = {}
    for query, document in grades:
        judged.setdefault(query, document)
    for query, document in zip(run.queries.tolist(), run.documents.tolist(), strict=True):
        if query in judged:
            pair = f"{shown(document)} in the run and {shown(judged[query])} in the judgements"
            return f", e.g. for query {shown(query)} document {pair}"
    if not judged:
        return ""
    first, other = run.queries.tolist()[0], next(iter(judged))
    return f", e.g. query {shown(first)} in the run and {shown(other)} in the judgements"


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
    remedy: Remedy
    if len(found) == 1:
        held = f"grade {found[0]:g}"
        remedy = "A map needs judgements of both kinds: judge more documents."
    else:
        held = f"grades {found[0]:g} to {found[-1]:g}"
        lowest = found[1] if labels[0] else found[-1]
        remedy = ("Declare another rule, such as ", Setting("relevant", f"{lowest:g}"), ".")
    raise FitError(
        "some judged documents",
        f"be relevant{rule} and some not",
        f"{verdict} of {len(labels):,} relevant, with {held}",
        remedy,
    )


def _labels(grades: Floats, relevant: Threshold | None) -> Floats:
    if relevant is None:
        return grades
    return relevant.labels({relevant.column: grades})[0].astype(np.float64)


def _coverage(in_run: Ids, queries: Ids, labels: Floats, grades: Grades) -> str:
    """Which queries of the run and the judgements tell nothing, in words; "" if all do."""
    judged = set(queries.tolist())
    of_run = set(in_run.tolist())
    absent = {query for query, _ in grades} - of_run
    with_relevant = set(queries[labels > 0].tolist())
    counts = {
        "of the run without a judged document": len(of_run - judged),
        "judged but not in the run": len(absent),
        "without a relevant document": len(judged - with_relevant),
    }
    parts = [f"{count:,} {what}" for what, count in counts.items() if count]
    return f"Queries: {', '.join(parts)}." if parts else ""


def _pool_known(
    is_judged: Mask, reached: Indices, which: str, depth: int
) -> tuple[str, str | None]:
    """The population that the runs of the pool reached, and what that leaves open."""
    population = f"{which} of this run that the pool's runs returned among their first {depth}"
    outside = reached == 0
    if not outside.any():
        return population, None
    warning = (
        f"{outside.sum():,} of {len(reached):,} documents of the run were out of the pool's reach: "
        "the map is not for such documents."
    )
    left_out = int((outside & is_judged).sum())
    if left_out:
        warning += (
            f" {left_out:,} of them are judged and left out, because nothing says why these were "
            "judged: give the other runs of the pool, or a larger depth."
        )
    return population, warning


def _pool_unknown(run: Run, is_judged: Mask, which: str) -> tuple[str, str | None]:
    """The population where the runs of the pool are not given, and what that leaves open."""
    # Queries without any judgement say nothing about how deep the others were judged.
    of_judged = np.isin(run.queries, run.queries[is_judged])
    in_judged = "" if of_judged.all() else " for queries with judgements"
    if is_judged[of_judged].all():
        return f"the {which} of this run{in_judged}, which are all judged", None
    population = f"judged documents among the {which} of this run"
    if which == "documents":
        population = "judged documents of this run"
    ranks = run.ranks
    parts = []
    for depth in [depth for depth in _DEPTHS if depth <= ranks.max()]:
        within = of_judged & (ranks <= depth)
        parts.append(f"{is_judged[within].mean():.0%} of the first {depth}")
    shares = f" ({', '.join(parts)})" if parts else ""
    warning = (
        f"{is_judged.sum():,} of {of_judged.sum():,} documents{in_judged} are judged{shares}; "
        "the others are left out, not counted as irrelevant. Judged documents are a selection, "
        "usually with more relevant ones: give the runs that made the pool, or use "
        "the map on documents such as the judged ones."
    )
    return population, warning


def _reached(run: Run, pool: Sequence[Run], depth: int) -> Indices:
    """How many runs of the pool returned each document among their first `depth`."""
    counts: dict[tuple[str, str], int] = {}
    for other in pool:
        first = other.ranks <= depth
        queries = other.queries[first].tolist()
        for pair in zip(queries, other.documents[first].tolist(), strict=True):
            counts[pair] = counts.get(pair, 0) + 1
    pairs = zip(run.queries.tolist(), run.documents.tolist(), strict=True)
    return np.array([counts.get(pair, 0) for pair in pairs], dtype=np.intp)


def _judged_fraction(reached: Indices, is_judged: Mask) -> Floats:
    """P(judged) by how many runs reached a document: 1 where the whole pool was judged."""
    rows = np.bincount(reached)
    judged = np.bincount(reached, is_judged)
    fraction = judged / np.maximum(rows, 1)
    by_row: Floats = fraction[reached]
    return by_row
