"""Thresholds with a guarantee: the promise is kept in worlds whose truth is known."""

import numpy as np
import pytest

import calibrank as cr
from calibrank.decisions import THRESHOLDS, UserSums, certify, log_e_values

ROWS = 12
Draw = tuple[np.ndarray, np.ndarray, np.ndarray]


def draw(users: int, rng: np.random.Generator, slope: float = 1.0) -> Draw:
    """Users whose rows depend on each other: a user's labels share a random shift."""
    codes = np.repeat(np.arange(users), ROWS)
    probabilities = rng.random(users * ROWS)
    mood = rng.choice([-0.2, 0.2], users)[codes]
    labels = rng.random(users * ROWS) < np.clip(probabilities * slope + mood, 0, 1)
    return probabilities, labels.astype(float), codes


def true_share(threshold: float, slope: float = 1.0, longest: int | None = None) -> float:
    """The share of unwanted among what is shown, from many users."""
    probabilities, labels, codes = draw(20_000, np.random.default_rng(99), slope)
    order = np.lexsort((-probabilities, codes))
    ranked = probabilities[order].reshape(-1, ROWS)[:, :longest]
    liked = labels[order].reshape(-1, ROWS)[:, :longest]
    return 1 - liked[ranked >= threshold].mean()


@pytest.mark.parametrize(
    ("longest", "slope", "unwanted"), [(None, 1.0, 0.35), (4, 1.0, 0.25), (None, 0.8, 0.45)]
)
def test_the_promise_is_broken_in_at_most_5_percent_of_worlds(
    longest: int | None, slope: float, unwanted: float
) -> None:
    rng = np.random.default_rng(0)
    thresholds = []
    for _ in range(100):
        probabilities, labels, codes = draw(300, rng, slope)
        result = cr.control(probabilities, labels, codes, unwanted=unwanted, longest=longest)
        thresholds.append(result.threshold or 1.0)
    found = [threshold for threshold in set(thresholds) if threshold < 1]
    broken = {each for each in found if true_share(each, slope, longest) > unwanted}
    assert sum(each in broken for each in thresholds) <= 5
    # Most worlds get an answer.
    assert np.median(thresholds) < 1


def test_the_e_value_rarely_exceeds_20_where_the_promise_is_just_broken() -> None:
    rng = np.random.default_rng(1)
    grid = np.array([0.5])
    border = true_share(0.5)
    at_border = exceeded = 0
    for _ in range(400):
        probabilities, labels, codes = draw(300, rng)
        sums = UserSums.of(probabilities, cr.naive(labels), codes, grid)
        at_border += log_e_values(sums, border)[0] > np.log(20)
        exceeded += log_e_values(sums, border + 0.1)[0] > np.log(20)
    assert at_border <= 20
    assert exceeded > 390


def test_more_users_give_lower_thresholds_down_to_the_true_one() -> None:
    thresholds = []
    for users in (300, 1_000, 10_000):
        data = draw(users, np.random.default_rng(2))
        thresholds.append(cr.control(*data, unwanted=0.35).threshold)
    assert thresholds == sorted(thresholds, reverse=True)
    assert true_share(thresholds[-1]) == pytest.approx(0.35, abs=0.03)
    assert true_share(thresholds[-1]) < 0.35


def test_known_result_of_certain_labels() -> None:
    probabilities = np.tile([0.1, 0.9], 200)
    found = cr.control(probabilities, probabilities > 0.5, np.repeat(np.arange(200), 2))
    assert found.threshold == 0.11
    assert found.observed == 0
    assert found.shown == 0.5
    assert found.users == 200
    # From the first start with something to show on, all thresholds above 0.1 are accepted.
    between = (THRESHOLDS > 0.1) & (found.certified[0] >= THRESHOLDS)
    assert found.certified == tuple(THRESHOLDS[between][::-1])
    assert 0.8 < found.certified[0] <= 0.9
    assert "at most 20% of what is shown is unwanted, with 95% confidence" in str(found)


def test_no_threshold_is_found_where_none_exists() -> None:
    probabilities, _, codes = draw(200, np.random.default_rng(3))
    found = cr.control(probabilities, np.zeros(len(codes)), codes)
    assert found.threshold is None
    assert found.certified == ()
    assert "No threshold promises" in str(found)


def test_later_thresholds_inherit_the_error_of_accepted_ones() -> None:
    """One start alone would need an e-value of 160; after an accepted one 20 * 8 / 2 are enough."""
    log_wealth = np.log([200.0, 200.0, 1.0, 30.0, 200.0])

    def accepted(monkeypatch_values: np.ndarray) -> list[bool]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("calibrank.decisions.log_e_values", lambda *_: monkeypatch_values)
            empty = UserSums(np.zeros((1, 5)), np.zeros((1, 5)), 1.0)
            return certify(empty, 0.2, 0.05).tolist()

    # Five thresholds, five starts of 1% each: 100 is needed alone, 50 after one accepted before.
    assert accepted(log_wealth) == [True, True, False, False, True]
    assert accepted(np.log([101.0, 51.0, 34.0, 26.0, 21.0])) == [True] * 5
    assert accepted(np.log([99.0, 51.0, 99.0, 99.0, 99.0])) == [False] * 5


def test_impressions_with_logged_propensities_are_weighted() -> None:
    """Pairs above 0.5 that are liked are shown ten times more often than others."""
    rng = np.random.default_rng(4)
    probabilities, labels, codes = draw(4_000, rng)
    propensity = np.where(labels == 1, 1.0, 0.2)
    seen = rng.random(len(codes)) < propensity
    given = probabilities[seen], labels[seen], codes[seen]
    naive = cr.control(*given, unwanted=0.3).threshold
    evidence = cr.impressions(labels[seen], propensity[seen])
    weighted = cr.control(given[0], evidence, given[2], unwanted=0.3).threshold
    assert true_share(naive) > 0.4
    assert 0.25 < true_share(weighted) < 0.3


def test_users_are_the_sampling_units() -> None:
    """The same rows as one user each, or as copies of few users, which know less."""
    probabilities, labels, codes = draw(100, np.random.default_rng(5))
    copies = [np.tile(values, 10) for values in (probabilities, labels, codes)]
    alone = cr.control(probabilities, labels, codes, unwanted=0.4)
    assert cr.control(*copies, unwanted=0.4).threshold == alone.threshold


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"unwanted": 1.0}, "unwanted must"),
        ({"confidence": 0.0}, "confidence must"),
        ({"longest": 0}, "longest must"),
        ({"thresholds": [1.5]}, "must lie in"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(cr.DataError, match=message):
        cr.control([0.5, 0.6], [0, 1], [1, 2], **options)


def test_evidence_of_a_biased_log_is_refused() -> None:
    with pytest.raises(cr.DataError, match="labels must be unbiased for a guarantee, got ips"):
        cr.control([0.5, 0.6], cr.ips([0, 1], [0.5, 0.5]), [1, 2])
