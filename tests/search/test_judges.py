"""Judges beside people: labels, agreement, sources, plans of pairs, and what moved."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import calibrank as cr
from calibrank._internal.logit import expit
from calibrank.adapters import Cutoff, Margin
from calibrank.anchoring import labels_needed
from calibrank.data import write_judged_example
from calibrank.search import (
    Judge,
    Judged,
    Run,
    agreement,
    anchor_judged,
    judged_by,
    plan_judgements,
    plan_pairs,
    rate_moved,
    reachable_cuts,
    read_qrels,
    read_run,
    scores_moved,
)
from calibrank.tabular.labels import parse_rule

RULE = parse_rule("grade >= 2")


def make_run(queries: int, size: int, seed: int, shift: float = 0.0) -> Run:
    """Scores with a level per query."""
    rng = np.random.default_rng(seed)
    names = np.repeat(np.arange(queries), size).astype(str)
    documents = np.array([f"{seed}-{row}" for row in range(queries * size)])
    scores = shift + rng.normal(size=len(names)) + np.repeat(rng.normal(0, 0.7, queries), size)
    return Run(names, documents, scores)


def graded(run: Run, level: float, seed: int, slope: float = 1.0) -> dict[tuple[str, str], float]:
    rng = np.random.default_rng(seed)
    labels = rng.random(len(run)) < expit(level + slope * run.scores)
    pairs = zip(run.queries.tolist(), run.documents.tolist(), strict=True)
    return dict(zip(pairs, (3.0 * labels).tolist(), strict=True))


def platt(run: Run, judge: Judge) -> cr.CalibrationMap:
    judged = judged_by(run, [judge])
    fitted = cr.Platt().fit(judged.scores, judged.labels)
    record = replace(fitted.record, population=judged.recorded_population)
    return replace(fitted, record=record)


def test_agreement_counts_the_four_cells() -> None:
    pairs = [(f"q{number}", "d") for number in range(100)]
    truth = {pair: 3.0 if number < 40 else 0.0 for number, pair in enumerate(pairs)}
    called = {pair: 0.9 if 10 <= number < 60 else 0.2 for number, pair in enumerate(pairs)}
    found = agreement(Judge("judge", called), Judge("people", truth, RULE))
    assert found.pairs == 100
    assert found.called.value == 0.5
    assert found.relevant.value == 0.4
    assert found.precision.value == 0.6
    assert found.recall.value == 0.75
    assert found.agreed.value == 0.7
    assert found.gain.value == pytest.approx(0.1)
    assert not found.is_worse_than_constant
    for each in found[2:]:
        assert each.low <= each.value <= each.high
    reversed_judge = Judge("judge", {pair: 1 - value for pair, value in called.items()})
    assert agreement(reversed_judge, Judge("people", truth, RULE)).is_worse_than_constant
    with pytest.raises(cr.DataError, match="judge some of the same pairs, got none"):
        agreement(Judge("judge", {("other", "d"): 1.0}), Judge("people", truth, RULE))


def test_intervals_of_agreement_cover_the_truth() -> None:
    """Sixty labels of thirty queries, whose judge errs more in some queries than in others."""
    rng = np.random.default_rng(0)
    expected = float(expit(1.2 + 0.8 * rng.normal(size=100_000)).mean())
    covered = 0
    for _ in range(200):
        right = np.repeat(expit(1.2 + rng.normal(0, 0.8, 30)), 2)
        truth = rng.random(60) < 0.4
        called = np.where(rng.random(60) < right, truth, ~truth)
        pairs = [(str(row // 2), str(row)) for row in range(60)]
        people = Judge("people", dict(zip(pairs, truth.astype(float).tolist(), strict=True)))
        judge = Judge("judge", dict(zip(pairs, called.astype(float).tolist(), strict=True)))
        agreed = agreement(judge, people).agreed
        covered += agreed.low <= expected <= agreed.high
    assert covered >= 178, covered


def test_the_mean_of_judges_is_over_those_that_judged() -> None:
    first = Judge("a", {("q", "d"): 3.0, ("q", "e"): 0.0}, RULE)
    second = Judge("b", {("q", "d"): 0.5})
    run = Run(np.array(["q", "q"]), np.array(["d", "e"]), np.array([1.0, 0.0]))
    assert judged_by(run, [first, second]).labels.tolist() == [0.75, 0.0]


def test_anchoring_a_judge_names_both_and_moves_the_level() -> None:
    run = make_run(60, 20, seed=1)
    judge = Judge("folder/judge.qrels", graded(run, 1.0, seed=2), RULE)
    people = graded(run, -0.5, seed=3)
    start = platt(run, judge)
    chosen = plan_pairs(start, run, 60, seed=4)
    pairs = list(zip(chosen.pairs.queries.tolist(), chosen.pairs.documents.tolist(), strict=True))
    answers = Judge("answers.csv", {pair: people[pair] for pair in pairs}, RULE)
    propensity = dict(zip(pairs, chosen.propensity.tolist(), strict=True))
    after = anchor_judged(start, judged_by(run, [answers], propensity=propensity))
    truth = expit(-0.5 + run.scores)
    assert np.abs(after.predict(run.scores) - truth).mean() < 0.12
    assert np.abs(start.predict(run.scores) - truth).mean() > 0.2
    population = after.record.population
    assert population.sources[0].name == "judge.qrels"
    assert population.anchored_on[0].name == "answers.csv"
    assert population.relevant == "grade >= 2"
    assert "human" not in after.to_json()
    assert cr.CalibrationMap is type(after)
    kept = Cutoff(after, Margin(), threshold=0.5).kept(run.scores[:20])
    assert len(kept) == int((after.predict(run.scores[:20]) >= 0.5).sum())
    with pytest.raises(cr.DataError, match="others than those of the fit, got judge"):
        anchor_judged(start, judged_by(run, [judge]))
    with pytest.raises(cr.DataError, match="propensity must be given for every judged pair"):
        judged_by(run, [judge], propensity=propensity)


@pytest.mark.parametrize("labels", [30, 53, 106, 200])
def test_planned_pairs_are_spread_over_queries_and_ranks(labels: int) -> None:
    """Also where the number of pairs is that of queries, and all have a hundred documents."""
    run = make_run(53, 100, seed=5)
    fitted = cr.Platt().fit(run.scores, run.scores > np.random.default_rng(0).normal(size=5300))
    ranks = dict(zip(run.documents.tolist(), run.ranks.tolist(), strict=True))
    plan = plan_pairs(fitted, run, labels, seed=6)
    per_query = np.unique(plan.pairs.queries, return_counts=True)[1]
    assert len(per_query) >= 0.9 * min(labels, 53)
    assert per_query.max() <= np.ceil(labels / 53) + 1
    chosen = np.array([ranks[document] for document in plan.pairs.documents.tolist()])
    quarters = np.bincount((chosen - 1) // 25, minlength=4) / labels
    assert quarters.min() > 0.12
    assert (1 / plan.propensity).sum() == pytest.approx(5300, rel=0.1)


def test_more_pairs_are_planned_to_err_less() -> None:
    run = make_run(40, 20, seed=7)
    start = platt(run, Judge("judge", graded(run, 0.5, seed=8), RULE))
    plan = plan_judgements(start, run, sizes=(20, 100, 400))
    errors = [step.error for step in plan]
    assert errors == sorted(errors, reverse=True)
    between = labels_needed(plan, (errors[0] + errors[1]) / 2)
    assert between is not None
    assert 20 < between < 100
    assert labels_needed(plan, errors[2] / 10) is None
    assert labels_needed(plan, 1.0) == 20


def test_scores_move_with_the_model_and_not_with_the_queries() -> None:
    run = make_run(50, 20, seed=9)
    fitted = platt(run, Judge("judge", graded(run, 0.0, seed=10), RULE))
    alarms = [scores_moved(fitted.record, make_run(50, 20, seed=seed)) for seed in range(100, 140)]
    assert sum(alarm is not None for alarm in alarms) <= 1
    assert "scores moved" in (scores_moved(fitted.record, make_run(50, 20, 11, shift=2.0)) or "")


def test_the_judged_rate_moves_beyond_chance() -> None:
    run = make_run(50, 20, seed=12)
    fitted = platt(run, Judge("judge", graded(run, 0.0, seed=13), RULE))
    alarms = []
    for seed in range(40):
        other = make_run(50, 20, seed=200 + seed)
        judged = judged_by(other, [Judge("new", graded(other, 0.0, seed=seed), RULE)])
        alarms.append(rate_moved(fitted, judged) is not None)
    assert sum(alarms) <= 3
    moved = judged_by(run, [Judge("new", graded(run, 1.0, seed=14), RULE)])
    assert "The level moved" in (rate_moved(fitted, moved) or "")


def test_a_cut_by_rank_is_found_where_the_score_is_no_help() -> None:
    """The first document of each query is relevant in 70%; scores differ by query alone."""
    rng = np.random.default_rng(15)
    queries = np.repeat(np.arange(80), 10)
    ranks = np.tile(np.arange(10), 80)
    scores = np.repeat(rng.normal(size=80), 10) - 1e-3 * ranks
    labels = (rng.random(800) < np.where(ranks == 0, 0.7, 0.1)).astype(float)
    judged = Judged(queries, np.arange(800), scores, labels, cr.impressions(labels), "all")
    found = reachable_cuts(judged, np.full(800, 0.16), 0.9)
    assert found.by_rank.top_k == 1
    assert found.by_rank.precision.value == labels[ranks == 0].mean()
    assert found.by_rank.answered.value == 1
    assert found.by_probability.precision.value < 0.3
    assert found.by_both.top_k == 1
    # With every other first document unjudged, all queries still get an answer.
    rows = np.flatnonzero((ranks > 0) | (queries % 2 == 0))
    run = Run(queries, np.arange(800), scores)
    evidence = cr.impressions(labels[rows])
    sparse = Judged(queries[rows], rows, scores[rows], labels[rows], evidence, "all", run=run)
    by_rank = reachable_cuts(sparse, np.full(len(rows), 0.16), 0.9).by_rank
    assert (by_rank.top_k, by_rank.kept, by_rank.answered.value) == (1, 40, 1.0)
    few = Judged(queries[:9], queries[:9], scores[:9], labels[:9], cr.naive(labels[:9]), "all")
    with pytest.raises(cr.FitError, match="have 10 judged documents in 5 queries"):
        reachable_cuts(few, np.full(9, 0.2), 0.9)


def test_the_example_has_a_generous_judge(tmp_path: Path) -> None:
    write_judged_example(tmp_path)
    run = read_run(str(tmp_path / "run.trec"))
    judges = [
        Judge(name, read_qrels(str(tmp_path / name)), RULE)
        for name in ("judge.qrels", "people.qrels")
    ]
    found = agreement(*judges)
    assert len(run) == found.pairs == 1500
    assert found.called.low > found.relevant.high
    assert found.gain.low > 0
