"""Comparisons with the scores and labels of a fit, by loops over quantiles and counted rows."""

from dataclasses import replace

import numpy as np
import pytest

import calibrank as cr
from calibrank._internal.json import digest_of_rows, sketch_of_rows
from calibrank.evidence import Evidence
from calibrank.maps import Anchoring, FitRecord
from calibrank.maps.score_shift import AnchorLabels, ScoreComparison
from calibrank.maps.training import record_of

RNG = np.random.default_rng(0)


def record_with(quantiles: tuple[float, ...], rows: int = 10**6) -> FitRecord:
    return FitRecord("naive", rows, 2.0, 4.0, exact=True, score_quantiles=quantiles)


def compared(record: FitRecord, *batches: list[float]) -> ScoreComparison:
    comparison = ScoreComparison(record)
    for batch in batches:
        comparison.add(np.array(batch))
    return comparison


def distance_by_loops(quantiles: tuple[float, ...], scores: np.ndarray) -> float:
    """The least distance of the scores from a distribution that has these quantiles."""
    levels = np.arange(len(quantiles)) / (len(quantiles) - 1)
    largest = 0.0
    for value in set(quantiles):
        # The distribution function of the fit at the value, and just before it.
        up_to = [level for each, level in zip(quantiles, levels, strict=True) if each <= value]
        after = [level for each, level in zip(quantiles, levels, strict=True) if each > value]
        before = [level for each, level in zip(quantiles, levels, strict=True) if each < value]
        first = min(level for each, level in zip(quantiles, levels, strict=True) if each == value)
        at, below = np.mean(scores <= value), np.mean(scores < value)
        largest = max(largest, max(up_to) - at, at - min(after, default=1.0))
        largest = max(largest, below - first, max(before, default=0.0) - below)
    return largest


@pytest.mark.parametrize("shift", [-9.0, -1.0, 0.0, 1.0, 9.0])
@pytest.mark.parametrize(
    "quantiles", [(0.0, 1.0), (0.0, 1.0, 1.0, 2.0, 5.0), (0.0, 0.0, 0.0, 3.0), (2.0, 2.0)]
)
def test_the_distance_is_the_least_one_that_the_quantiles_allow(
    quantiles: tuple[float, ...], shift: float
) -> None:
    scores = RNG.integers(0, 4, 17) + shift
    comparison = compared(record_with(quantiles), scores[:5].tolist(), [], scores[5:].tolist())
    assert comparison.distance == pytest.approx(distance_by_loops(quantiles, scores), abs=1e-12)
    outside = (scores < quantiles[0]) | (scores > quantiles[-1])
    assert comparison.outside == pytest.approx(outside.mean())
    assert (comparison.low, comparison.high) == (scores.min(), scores.max())
    assert comparison.rows == 17


def test_without_scores_nothing_is_shifted() -> None:
    for comparison in (compared(record_with((0.0, 1.0))), compared(record_with((0.0, 1.0)), [])):
        assert (comparison.distance, comparison.outside, comparison.rows) == (0.0, 0.0, 0)
        assert not comparison.is_shifted


def test_few_scores_prove_little() -> None:
    """1.95 / sqrt(3) is above 1, and 1.95 / sqrt(4) below it."""
    record = record_with((0.0, 1.0))
    assert not compared(record, [5.0] * 3).is_shifted
    assert not compared(record, [5.0], [5.0, 5.0]).is_shifted
    assert compared(record, [5.0] * 4).is_shifted
    assert compared(record, [5.0, 5.0], [5.0, 5.0]).is_shifted
    # The effective number of 8 and 8 is 4, that of 7 and 8 is below 3.8.
    assert compared(record_with((0.0, 1.0), 8), [5.0] * 8).is_shifted
    assert not compared(record_with((0.0, 1.0), 8), [5.0] * 7).is_shifted


@pytest.mark.parametrize(("beyond", "is_shifted"), [(199, False), (200, False), (201, True)])
def test_a_fifth_of_the_scores_may_be_outside(beyond: int, is_shifted: bool) -> None:
    scores = np.where(np.arange(1_000) < beyond, np.arange(1_000) % 2 * 9 - 4, 0.5)
    comparison = compared(record_with((0.0, 1.0)), scores.tolist())
    assert comparison.distance < 0.2
    assert comparison.is_shifted == is_shifted


@pytest.mark.parametrize(("below", "is_shifted"), [(795, False), (805, True)])
def test_the_distance_may_be_three_tenths(below: int, is_shifted: bool) -> None:
    scores = np.where(np.arange(1_000) < below, 0.2, 0.8)
    comparison = compared(record_with((0.0, 0.5, 1.0)), scores.tolist())
    assert comparison.distance == pytest.approx(below / 1_000 - 0.5)
    assert comparison.is_shifted == is_shifted


def test_a_batch_of_the_size_of_a_sample_is_counted_as_it_is() -> None:
    comparison = compared(record_with((0.0, 1.0)), [5.0] * 7 + [0.5] * (2**14 - 7))
    assert comparison.outside == 7 / 2**14


def test_a_sample_of_a_long_batch_stands_for_all_of_it() -> None:
    comparison = compared(record_with((0.0, 1.0)), [0.5] * 40_000, [5.0] * 10_000)
    assert comparison.rows == 50_000
    assert comparison.outside == pytest.approx(0.2)
    assert comparison.distance == pytest.approx(0.2)
    # As many scores as were compared decide how much they prove: more than were ever fitted.
    assert compared(record_with((0.0, 1.0), 5), [5.0] * 40_000).is_shifted


@pytest.mark.parametrize("weights", [np.ones(200), np.tile([3.0, 1.0], 100)], ids=["even", "odd"])
def test_a_quantile_is_the_score_at_which_its_mass_is_reached(weights: np.ndarray) -> None:
    scores = np.arange(200.0)
    evidence = Evidence(weights * (scores % 3 == 0), weights)
    record = record_of(cr.Summary.of(scores, evidence))
    expected = [0.0]
    for level in range(1, 200):
        mass = np.array([weights[: score + 1].sum() for score in range(200)])
        expected.append(float(np.flatnonzero(200 * mass >= level * weights.sum())[0]))
    assert record.score_quantiles == (*expected, 199.0)
    assert (record.rows, record.total) == (200, weights.sum())
    assert record.positive == weights[::3].sum()


SCORES = RNG.normal(size=10)
LABELS = (np.arange(10) % 2).astype(float)
ANCHORING = Anchoring(10, 10.0, 0.5, 0.5, 0.5, row_hashes=sketch_of_rows(SCORES, LABELS))
RECORD = replace(record_with((0.0, 1.0)), base_rate_source="random labels", anchoring=ANCHORING)


def are_known(record: FitRecord, *batches: tuple[np.ndarray, np.ndarray]) -> bool:
    labels = AnchorLabels(record)
    for scores, positive in batches:
        labels.add(scores, positive)
    return labels.are_used_again


@pytest.mark.parametrize(
    ("known", "new", "expected"),
    [(10, 0, True), (3, 0, True), (2, 0, False), (3, 2, True), (3, 3, False), (0, 10, False)],
)
def test_three_known_rows_that_are_most_of_them_are_used_again(
    known: int, new: int, expected: bool
) -> None:
    scores = np.concatenate([SCORES[:known], 100 + np.arange(new)])
    labels = np.concatenate([LABELS[:known], np.zeros(new)])
    assert are_known(RECORD, (scores, labels)) == expected
    assert are_known(RECORD, (scores[:1], labels[:1]), (scores[1:], labels[1:])) == expected
    assert not are_known(RECORD, (scores, 1 - labels))
    assert not are_known(record_with((0.0, 1.0)), (scores, labels))


def test_twice_as_many_rows_may_be_used_again_and_no_more() -> None:
    twice = [(SCORES, LABELS)] * 2
    assert are_known(RECORD, *twice)
    assert not are_known(RECORD, *twice, (SCORES[:1], LABELS[:1]))


def test_labels_of_tied_scores_are_known_if_all_are_there() -> None:
    digest = digest_of_rows(SCORES, LABELS)
    record = replace(RECORD, anchoring=replace(ANCHORING, digest=digest, row_hashes=()))
    rest = (SCORES[4:][::-1], LABELS[4:][::-1])
    assert are_known(record, rest, (SCORES[:4], LABELS[:4]))
    assert not are_known(record, rest)
    assert not are_known(record, rest, (SCORES[:4], 1 - LABELS[:4]))
    assert not are_known(record, (SCORES, LABELS), (SCORES[:1], LABELS[:1]))
