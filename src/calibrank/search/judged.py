"""The judged documents of a run, and the population that a map fitted on them is for.

What is not judged is not irrelevant: such rows are left out, never counted as negatives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from calibrank._arguments import whole
from calibrank._validation import Floats, Ids, Indices, Mask
from calibrank.errors import DataError
from calibrank.evidence import Evidence, impressions, soft_evidence
from calibrank.search.runs import Run
from calibrank.tabular.labels import Threshold

Grades = Mapping[tuple[str, str], float]

# Depths at which the fraction of judged documents is said.
_DEPTHS = (10, 100)
_MOST_DOCUMENTS = 10**9


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

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def n_queries(self) -> int:
        """The number of queries with a judged document."""
        return len(np.unique(self.queries))


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
    if top_k is not None:
        run = run.first(whole("top_k", top_k, 1, _MOST_DOCUMENTS))
    which = "documents" if top_k is None else f"first {top_k:,} documents per query"
    judged = _values(run, grades)
    is_judged = ~np.isnan(judged)
    if not is_judged.any():
        raise DataError(
            "the run and the judgements must share queries and documents, got no judged document. "
            "Check that their ids are written alike."
        )
    if not pool:
        return _rows(run, judged, is_judged, relevant, None, *_pool_unknown(run, is_judged, which))
    reached = _reached(run, pool, depth)
    kept = is_judged & (reached > 0)
    if not kept.any():
        raise DataError(
            f"the pool must hold judged documents of the run, got none in its first {depth}. "
            "Check the runs of --pool and --pool-depth."
        )
    propensity = _judged_fraction(reached, is_judged)
    text = f"{which} of this run that the pool's runs returned among their first {depth}"
    outside = int((reached == 0).sum())
    warning = None
    if outside:
        warning = (
            f"{outside:,} of {len(run):,} documents of the run were out of the pool's reach: "
            "nothing is known about such documents."
        )
    return _rows(run, judged, kept, relevant, propensity[kept], text, warning)


def _values(run: Run, grades: Grades) -> Floats:
    """The grade of each row of a run, NaN where it was not judged."""
    pairs = zip(run.queries.tolist(), run.documents.tolist(), strict=True)
    return np.array([grades.get(pair, np.nan) for pair in pairs])


def _rows(
    run: Run,
    grades: Floats,
    kept: Mask,
    relevant: Threshold | None,
    propensity: Floats | None,
    population: str,
    warning: str | None,
) -> Judged:
    labels = grades[kept]
    if relevant is not None:
        labels = relevant.labels({relevant.column: labels})[0].astype(np.float64)
    evidence = soft_evidence(impressions, labels, propensity, None)
    rows = np.flatnonzero(kept)
    return Judged(
        run.queries[rows],
        run.documents[rows],
        run.scores[rows],
        labels,
        evidence,
        population,
        warning,
    )


def _pool_unknown(run: Run, is_judged: Mask, which: str) -> tuple[str, str | None]:
    """The population where the runs of the pool are not given, and what that leaves open."""
    if is_judged.all():
        return f"the {which} of this run, which are all judged", None
    population = f"judged documents among the {which} of this run"
    if which == "documents":
        population = "judged documents of this run"
    ranks = run.ranks
    parts = []
    for depth in _DEPTHS:
        within = ranks <= depth
        parts.append(f"{is_judged[within].mean():.0%} of the first {depth}")
    warning = (
        f"{is_judged.sum():,} of {len(run):,} documents are judged ({', '.join(parts)}); the "
        "others are left out, not counted as irrelevant. Judged documents are a selection, "
        "usually with more relevant ones: give the runs that made the pool with --pool, or use "
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
