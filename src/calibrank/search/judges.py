"""Judges: models or people whose labels are checked against labels that are trusted more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import NamedTuple

import numpy as np

from calibrank._internal.arguments import instance
from calibrank._internal.validation import Numbers
from calibrank.anchoring import anchor
from calibrank.errors import DataError
from calibrank.evidence import impressions, naive, soft_evidence
from calibrank.maps import CalibrationMap, JudgementSource
from calibrank.metrics import Clusters, Estimate
from calibrank.search.held_out import require_judged
from calibrank.search.judged import Grades, Judged, judged_rows
from calibrank.search.moved import scores_moved
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
        if self.relevant is None:
            return self.grades
        values = np.array(list(self.grades.values()))
        labels = self.relevant.labels({self.relevant.column: values})[0]
        return dict(zip(self.grades, labels.astype(np.float64).tolist(), strict=True))


def mean_labels(judges: Sequence[Judge]) -> Grades:
    """The mean label of each pair over the judges that judged it, as probabilities.

    >>> first, second = Judge("a", {("q", "d"): 1.0}), Judge("b", {("q", "d"): 0.5})
    >>> mean_labels([first, second])
    {('q', 'd'): 0.75}
    """
    found: dict[tuple[str, str], list[float]] = {}
    for judge in judges:
        instance("judges", judge, Judge, "E.g. Judge(name, read_qrels(name)).")
        for pair, label in judge.labels().items():
            found.setdefault(pair, []).append(label)
    return {pair: float(np.mean(labels)) for pair, labels in found.items()}


def judged_by(
    run: Run,
    judges: Sequence[Judge],
    pool: Sequence[Run] = (),
    depth: int = 100,
    top_k: int | None = None,
    propensity: Grades | None = None,
) -> Judged:
    """The documents of a run that one or several judges judged; see `judged_rows`.

    The label of a document is the mean over the judges that judged it. `propensity` is the
    probability with which each pair was chosen to be judged, as `search plan` writes it.
    """
    if not judges:
        raise DataError("judges", "be at least one", "none", "E.g. Judge(name, grades).")
    grades, relevant = judges[0].grades, judges[0].relevant
    rules = {judge.source.rule for judge in judges}
    if len(judges) > 1:
        grades, relevant = mean_labels(judges), None
    judged = judged_rows(run, grades, relevant, pool, depth, top_k)
    if len(judges) > 1 and len(rules) == 1 and judges[0].relevant is not None:
        judged = replace(judged, relevant=rules.pop())
    judged = replace(judged, sources=tuple([judge.source for judge in judges]))
    return judged if propensity is None else _with_propensity(judged, propensity)


def _with_propensity(judged: Judged, propensity: Grades) -> Judged:
    """Documents that were chosen with known probabilities: each stands for those like it."""
    pairs = list(zip(judged.queries.tolist(), judged.documents.tolist(), strict=True))
    absent = [pair for pair in pairs if pair not in propensity]
    if absent:
        raise DataError(
            "propensity",
            "be given for every judged pair",
            f"none for {absent[0]}",
            "Judge the pairs of one plan, or leave the column out.",
        )
    chances = np.array([propensity[pair] for pair in pairs])
    evidence = soft_evidence(impressions, judged.labels, chances, None)
    return replace(judged, evidence=evidence, propensity=chances)


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
    known = {(source.name, source.rule) for source in before.sources} if before else set()
    for source in judged.sources:
        if (source.name, source.rule) in known:
            raise DataError(
                "judgements to anchor on",
                "be others than those of the fit",
                f"{source.name} again",
                "Give those that you trust more.",
            )
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
        raise DataError(
            f"{judge.name} and {trusted.name}",
            "judge some of the same pairs",
            "none",
            "Check that ids are written alike.",
        )
    called = np.array([labels[pair] >= _CALLED for pair in pairs])
    truth = np.array([truths[pair] >= _CALLED for pair in pairs])
    codes = np.unique([query for query, _ in pairs], return_inverse=True)[1]
    agreed = called == truth
    constant = truth if truth.mean() >= _CALLED else ~truth
    ones = np.ones(len(pairs))
    ratios = _ratios(
        codes,
        [called, truth, called & truth, called & truth, agreed, agreed],
        [ones, ones, called, truth, ones, ones],
        [0 * ones] * 5 + [constant],
    )
    return Agreement(judge.name, len(pairs), *ratios)


def _ratios(
    codes: np.ndarray[tuple[int], np.dtype[np.intp]],
    above: Sequence[np.ndarray[tuple[int], np.dtype[np.bool_]]],
    below: Sequence[np.ndarray[tuple[int], np.dtype[np.generic]]],
    offset: Sequence[np.ndarray[tuple[int], np.dtype[np.generic]]],
) -> list[Estimate]:
    """Ratios of sums over rows, one per column, with intervals by cluster."""
    clusters = Clusters.of(codes)
    sums = []
    for columns in (above, below, offset):
        by_bin = [clusters.sums(0 * codes, column.astype(np.float64), 1) for column in columns]
        sums.append(np.hstack(by_bin))
    rows = np.array([float(column.sum()) for column in below])
    found = clusters.ratios(sums[0], sums[1], rows, sums[2])
    return [Estimate(*map(float, each)) for each in zip(*found, strict=True)]
