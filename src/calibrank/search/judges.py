"""Judges: which pairs they should judge, and how they compare with labels that are trusted more."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import NamedTuple

import numpy as np

from calibrank._internal.arguments import instance, listed
from calibrank._internal.validation import Floats, Numbers, add_up
from calibrank.anchoring import ExpectedError, anchor, choose_pairs, plan_labels
from calibrank.errors import DataError
from calibrank.evidence import naive, soft_evidence
from calibrank.maps import CalibrationMap, FitRecord, JudgementSource
from calibrank.maps.score_shift import ScoreComparison
from calibrank.metrics import Estimate
from calibrank.metrics.cluster_rates import Clusters
from calibrank.search.judged import (
    Grades,
    Judged,
    effective_rows,
    judged_rows,
    labels_of,
    require_judged,
)
from calibrank.search.runs import Run
from calibrank.tabular.labels import Threshold

# A judge's probability from which on a document counts as called relevant.
_CALLED = 0.5


@dataclass(frozen=True, slots=True, eq=False)
class Judge:
    """The judgements of one source, and which of its grades are relevant."""

    name: str
    grades: Grades
    relevant: Threshold | None = None
    """The rule of relevance; None where grades are probabilities."""
    column: str = "grade"
    """The column of probabilities, in a table of several judges."""

    @property
    def source(self) -> JudgementSource:
        """What a map keeps of the judge: the file without its folder, and the rule."""
        rule = f"probability({self.column})" if self.relevant is None else str(self.relevant)
        return JudgementSource(PurePath(self.name).name, rule)

    def labels(self) -> Grades:
        """1 for relevant, 0 for not; probabilities as they are."""
        labels = labels_of(np.array(list(self.grades.values())), self.relevant)
        return dict(zip(self.grades, labels.tolist(), strict=True))


def judged_by(
    run: Run, judges: Sequence[Judge], top_k: int | None = None, propensity: Grades | None = None
) -> Judged:
    """The documents of a run that one or several judges judged; see `judged_rows`.

    The label of a document is the mean over the judges that judged it.
    """
    if not judges:
        raise DataError("judges", "be at least one", "none", "E.g. Judge(name, grades).")
    for judge in judges:
        instance("judges", judge, Judge, "E.g. Judge(name, read_qrels(name)).")
    grades, relevant = judges[0].grades, judges[0].relevant
    rules = {judge.source.rule for judge in judges}
    if len(judges) > 1:
        found: dict[tuple[str, str], list[float]] = defaultdict(list)
        for judge in judges:
            for pair, label in judge.labels().items():
                found[pair].append(label)
        grades, relevant = {pair: float(np.mean(labels)) for pair, labels in found.items()}, None
    judged = judged_rows(run, grades, relevant, top_k, propensity)
    if len(judges) > 1 and len(rules) == 1 and judges[0].relevant is not None:
        judged = replace(judged, relevant=rules.pop())
    return replace(judged, sources=tuple([judge.source for judge in judges]))


def anchor_judged(
    fitted: CalibrationMap, judged: Judged, population: Numbers | None = None
) -> CalibrationMap:
    """Anchor a map on judgements that are trusted more; the record names both sources.

    Judgements of one query are alike and count for less. `population` holds the scores of the
    documents that probabilities are wanted for. By default they are those of the map's fit, or of
    the judged run if its scores moved: another model, or other queries.
    """
    require_judged(judged)
    before = fitted.record.population
    if population is None and judged.run is not None and scores_moved(fitted.record, judged.run):
        population = judged.run.scores
    for source in judged.sources:
        if before is not None and source in before.sources:
            rule, remedy = "be others than those of the fit", "Give those that you trust more."
            raise DataError("judgements to anchor on", rule, f"{source.name} again", remedy)
    anchored = anchor(
        fitted,
        judged.scores,
        soft_evidence(naive, judged.labels, None, None),
        propensity=judged.propensity,
        groups=judged.queries,
        population=population,
    )
    start = before or judged.recorded_population
    after = replace(
        start,
        relevant=judged.relevant,
        anchored_on=(*(before.anchored_on if before else ()), *judged.sources),
    )
    return replace(anchored, record=replace(anchored.record, population=after))


class Agreement(NamedTuple):
    """A judge beside trusted labels of the same pairs; intervals are by query."""

    judge: str
    pairs: int
    called: Estimate
    """The fraction that the judge calls relevant."""
    relevant: Estimate
    """The fraction that is relevant by the trusted labels."""
    precision: Estimate
    """Of those that the judge calls relevant, the fraction that is."""
    recall: Estimate
    """Of those that are relevant, the fraction that the judge calls so."""
    agreed: Estimate
    gain: Estimate
    """By how much agreement exceeds that of the better constant answer."""

    @property
    def is_worse_than_constant(self) -> bool:
        """Whether one answer for all pairs would agree with people more often, beyond chance."""
        return self.gain.high < 0


def agreement(judge: Judge, trusted: Judge) -> Agreement:
    """Compare a judge with labels that are trusted more, on the pairs that both judged.

    >>> pairs = [(f"q{i}", "d") for i in range(40)]
    >>> people = Judge("people", {pair: float(i % 4 == 0) for i, pair in enumerate(pairs)})
    >>> model = Judge("model", {pair: float(i % 2 == 0) for i, pair in enumerate(pairs)})
    >>> found = agreement(model, people)
    >>> found.called.value, found.precision.value, found.recall.value
    (0.5, 0.5, 1.0)
    """
    labels, truths = judge.labels(), trusted.labels()
    pairs = [pair for pair in truths if pair in labels]
    if not pairs:
        rule, remedy = "judge some of the same pairs", "Check that ids are written alike."
        raise DataError(f"{judge.name} and {trusted.name}", rule, "none", remedy)
    called = np.array([labels[pair] >= _CALLED for pair in pairs])
    truth = np.array([truths[pair] >= _CALLED for pair in pairs])
    codes = np.unique([query for query, _ in pairs], return_inverse=True)[1]
    agreed = called == truth
    constant = truth if truth.mean() >= _CALLED else ~truth
    ones = np.ones(len(pairs))
    above = [called, truth, called & truth, called & truth, agreed, agreed]
    below = [ones, ones, called, truth, ones, ones]
    clusters = Clusters.of(codes)
    sums = []
    for columns in (above, below, [0 * ones] * 5 + [constant]):
        by_bin = [clusters.sums(0 * codes, each.astype(np.float64), 1) for each in columns]
        sums.append(np.hstack(by_bin))
    rows = np.array([float(each.sum()) for each in below])
    found = clusters.ratios(sums[0], sums[1], rows, sums[2])
    ratios = [Estimate(*map(float, each)) for each in zip(*found, strict=True)]
    return Agreement(judge.name, len(pairs), *ratios)


# Two samples of one distribution are further apart than this, over the root of their effective
# size, in 1 of 1,000 cases (Smirnov, 1948); smaller distances than the second never matter.
_CRITICAL = 1.95
_SMALLEST_DISTANCE = 0.1
# Standard errors that a judged rate may be off: 1 check in 100 is further by chance.
_STANDARD_ERRORS = 2.58


def scores_moved(record: FitRecord, run: Run) -> str | None:
    """What to say if the scores of a run differ by more than those of other queries would.

    Scores of one query are alike, so that queries count more than documents.
    """
    known = record.population
    if known is None or known.run_scores is None or known.effective_rows is None:
        return None
    comparison = ScoreComparison(replace(record, score_quantiles=known.run_scores))
    comparison.add(run.scores)
    sizes = effective_rows(run), known.effective_rows
    noise = _CRITICAL / np.sqrt(sizes[0] * sizes[1] / (sizes[0] + sizes[1]))
    if comparison.distance <= max(noise, _SMALLEST_DISTANCE):
        return None
    return (
        "the scores moved beyond what queries of the map's run differ by: the fraction of "
        f"documents below some score changed by {comparison.distance:.0%}, and by chance by up to "
        f"{min(noise, 1):.0%}. Either the model or the queries are others. Anchor the map on a few "
        "judgements of this run."
    )


def rate_moved(fitted: CalibrationMap, judged: Judged) -> str | None:
    """What to say if more or fewer documents are relevant than the map predicts, beyond chance.

    Chance is that of queries, and the map's own standard error.
    """
    total = judged.evidence.total
    probabilities = fitted.predict(judged.scores)
    predicted = float(probabilities @ total / total.sum())
    observed = float(judged.evidence.positive.sum() / total.sum())
    gaps = judged.evidence.positive - total * probabilities
    residuals = gaps - total * (observed - predicted)
    by_query = add_up(np.unique(judged.queries, return_inverse=True)[1], residuals)
    count = len(by_query)
    variance = float((by_query**2).sum()) / total.sum() ** 2 * count / max(count - 1, 1)
    interval = fitted.sampling_interval(judged.scores)
    own = float((interval.high - interval.low) @ total / total.sum()) / 3.92
    error = float(np.sqrt(variance + own**2))
    if count < 2 or abs(observed - predicted) <= _STANDARD_ERRORS * error:
        return None
    return (
        f"{observed:.1%} of the judged documents are relevant and the map predicts "
        f"{predicted:.1%}, {abs(observed - predicted) / error:.1f} standard errors by query apart. "
        "The level moved: anchor the map on these judgements (calibrank anchor)."
    )


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
    return Plan(run.take(rows), propensity)


def plan_judgements(
    fitted: CalibrationMap, run: Run, sizes: Sequence[int] = SIZES
) -> list[ExpectedError]:
    """Estimate how far probabilities are off after anchoring on the pairs of `plan_pairs`."""
    instance("run", run, Run, "Read one with read_run(name).")
    require_scores_alone(fitted)
    return plan_labels(fitted, run.scores, sizes, groups=run.queries)


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
