"""Position bias: examination by rank, from worlds in which it is known."""

import numpy as np
import pytest

import calibrank as cr
from calibrank.propensity import Position, estimate_position

TRUTH = 1 / np.arange(1, 7) ** 0.8


def ranked_world(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Items whose rank rises with their preference, with noise: better items are shown first."""
    rng = np.random.default_rng(seed)
    preference = rng.beta(2, 4, 300)
    items = rng.integers(0, 300, rows)
    noise = rng.normal(0, 1.2, rows)
    ranks = np.clip(np.rint(5.5 - 9 * preference[items] + noise), 1, 6).astype(int)
    clicks = rng.random(rows) < TRUTH[ranks - 1] * preference[items]
    return items, ranks, clicks.astype(float)


def test_known_examination_is_recovered_where_the_click_rate_by_rank_is_not() -> None:
    items, ranks, clicks = ranked_world(60_000, 0)
    fitted = estimate_position(items, ranks, clicks)
    rates = np.array([clicks[ranks == rank].mean() for rank in range(1, 7)])
    # Good items are shown first, so click rates fall faster than examination.
    assert np.abs(rates / rates[0] - TRUTH).max() > 0.15
    error = np.abs(fitted.examination - TRUTH)
    assert error[:5].max() < 0.04
    assert fitted.examination[0] == 1


def test_inverse_examination_recovers_preference() -> None:
    items, ranks, clicks = ranked_world(60_000, 3)
    fitted = estimate_position(items, ranks, clicks)
    rng = np.random.default_rng(3)
    preference = rng.beta(2, 4, 300)[items]
    evidence = cr.ips(clicks, fitted.predict(ranks))
    assert evidence.positive.sum() / evidence.total.sum() == pytest.approx(
        preference.mean(), rel=0.04
    )


def test_a_personalised_ranker_needs_its_scores() -> None:
    rng = np.random.default_rng(0)
    users, candidates, shown = 3_000, 20, 6
    items = rng.integers(0, 60, (users, candidates))
    log_odds = -1 + rng.normal(0, 0.7, 60)[items] + 1.2 * rng.normal(size=items.shape)
    scores = log_odds + 0.5 * rng.normal(size=items.shape)
    order = np.argsort(-scores - rng.normal(size=items.shape), axis=1)[:, :shown]
    items = np.take_along_axis(items, order, 1).ravel()
    log_odds = np.take_along_axis(log_odds, order, 1).ravel()
    scores = np.take_along_axis(scores, order, 1).ravel()
    ranks = np.tile(np.arange(1, shown + 1), users)
    chances = 1 / (1 + np.exp(-log_odds))
    clicks = (rng.random(len(ranks)) < chances * TRUTH[ranks - 1]).astype(float)
    ratios = []
    for given in (None, scores):
        fitted = estimate_position(items, ranks, clicks, given)
        evidence = cr.ips(clicks, fitted.predict(ranks))
        ratios.append(evidence.positive.sum() / chances.sum())
    assert ratios[0] > 1.2
    assert ratios[1] == pytest.approx(1, abs=0.05)


def test_a_given_table_is_used_and_checked() -> None:
    position = Position([1.0, 0.5, 0.001], clip=0.01)
    np.testing.assert_allclose(position.predict([1, 2, 3]), [1, 0.5, 0.01])
    with pytest.raises(cr.DataError, match="ranks must be at most 3, whose examination is known"):
        position.predict([4])
    with pytest.raises(
        cr.DataError, match="ranks must be whole numbers from 1 to 1,000,000, got 0"
    ):
        position.predict([0])
    with pytest.raises(cr.DataError, match=r"examination must lie in \(0, 1\], got 1\.5"):
        Position([1.0, 1.5])
    with pytest.raises(cr.DataError, match="examination must hold a probability per rank"):
        Position([])


def test_ranks_without_a_link_are_refused() -> None:
    with pytest.raises(cr.DataError, match="got none for rank 2"):
        estimate_position(["a", "b"] * 5, [1, 2] * 5, [1, 1] * 5)
    with pytest.raises(cr.DataError, match="got none for rank 2"):
        estimate_position(["a", "a"] * 5, [1, 2] * 5, [1, 0] * 5)
