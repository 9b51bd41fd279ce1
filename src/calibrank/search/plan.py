"""Plan which pairs of query and document people should judge, and how many."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from calibrank._internal.arguments import instance, listed
from calibrank._internal.validation import Floats
from calibrank.anchoring import ExpectedError, choose_pairs, plan_labels
from calibrank.errors import DataError
from calibrank.maps import CalibrationMap
from calibrank.search.runs import Run

SIZES = (30, 100, 300, 1_000)
COLUMNS = ("query", "document", "grade", "propensity")
"""The columns of a plan; grades are left empty, for annotators to fill in."""


class Plan(NamedTuple):
    """The pairs to judge, in the order of the run, and how likely each was chosen."""

    pairs: Run
    propensity: Floats

    def to_csv(self) -> str:
        """A table for annotators, which `anchor --qrels` takes once its grades are filled in."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS)
        columns = (self.pairs.queries, self.pairs.documents, self.propensity)
        for query, document, chance in zip(*[each.tolist() for each in columns], strict=True):
            writer.writerow([query, document, "", f"{chance:.9g}"])
        return text.getvalue()


def plan_pairs(
    fitted: CalibrationMap, run: Run, labels: int = 100, seed: int | np.random.Generator = 0
) -> Plan:
    """Choose pairs to judge: spread over queries and ranks, more where the map is unsure.

    Hundred pairs of thirty queries say as much about new queries as all pairs of thirty queries.

    >>> from calibrank import Platt
    >>> rng = np.random.default_rng(0)
    >>> queries, documents = np.repeat(np.arange(50), 20), np.tile(np.arange(20), 50)
    >>> run = Run(queries, documents, rng.normal(size=1000))
    >>> fitted = Platt().fit(run.scores, run.scores + rng.normal(size=1000) > 0)
    >>> plan = plan_pairs(fitted, run, 50)
    >>> len(plan.pairs), len(set(plan.pairs.queries))
    (50, 50)
    """
    instance("run", run, Run, "Read one with read_run(name).")
    require_scores_alone(fitted)
    rows, propensity = choose_pairs(fitted, run.scores, labels, segments=run.queries, seed=seed)
    pairs = Run(run.queries[rows], run.documents[rows], run.scores[rows])
    return Plan(pairs, propensity)


def plan_judgements(
    fitted: CalibrationMap,
    run: Run,
    sizes: Sequence[int] = SIZES,
    draws: int = 10,
    seed: int | np.random.Generator = 0,
) -> list[ExpectedError]:
    """Estimate how far probabilities are off after anchoring on the pairs of `plan_pairs`."""
    instance("run", run, Run, "Read one with read_run(name).")
    require_scores_alone(fitted)
    return plan_labels(fitted, run.scores, sizes, draws, seed, groups=run.queries)


def require_scores_alone(fitted: CalibrationMap) -> None:
    """Check that a map needs no columns, which runs do not hold."""
    instance("fitted", fitted, CalibrationMap, "Fit one, or read one with calibrank.load.")
    if fitted.columns:
        raise DataError(
            "the map",
            "be one of scores alone",
            f"one that uses {listed(fitted.columns)}, which runs do not hold",
            "Use calibrank apply on a table with these columns.",
        )
