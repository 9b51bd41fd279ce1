"""Batches of rows to pool."""

import numpy as np
import pytest

import calibrank as cr
from calibrank.summary.bins import Batch, has_few_distinct


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("distinct", "expected"), [(1, True), (64, True), (65, False)])
def test_distinct_scores_are_counted_exactly(seed: int, distinct: int, expected: bool) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.permutation(np.arange(10_000.0) % distinct)
    assert has_few_distinct(scores, 64) is expected


def test_a_rare_score_at_the_end_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibrank.summary.bins._COMPARED", 100)
    scores = np.arange(1_000.0) % 64
    assert has_few_distinct(scores, 64)
    scores[-1] = 64
    assert not has_few_distinct(scores, 64)


def test_unit_weights_keep_the_arrays_of_the_caller() -> None:
    scores = np.array([0.5, 0.7])
    evidence = cr.naive([1, 0])
    batch = Batch.of(scores, evidence)
    assert batch.scores is scores
    assert batch.evidence is evidence
    assert (batch.low, batch.high) == (0.5, 0.7)


def test_rows_of_weight_zero_do_not_widen_the_range() -> None:
    batch = Batch.of([-9.0, 0.5, 0.7, 9.0], cr.naive([0, 0, 1, 1], weights=[0, 1, 1, 0]))
    assert batch.scores.tolist() == [0.5, 0.7]
    assert (batch.low, batch.high) == (0.5, 0.7)
    assert batch.evidence.positive.tolist() == [0, 1]
