"""Exposure: propensities of being shown, from numbers of impressions."""

import numpy as np
import pytest

import calibrank as cr
from calibrank.propensity import Exposure
from calibrank.tables import Interactions, ScoreTable


def shown_world(seed: int) -> tuple[Interactions, float]:
    """A log shown with P = item rate x user rate, and the base rate over all pairs."""
    rng = np.random.default_rng(seed)
    item_rate = rng.uniform(0.05, 1, 80)
    user_rate = rng.uniform(0.05, 1, 400)
    shown = rng.random((400, 80)) < user_rate[:, None] * item_rate
    # Items that are shown more are liked more, so the plain like share is too high.
    liked = rng.random((400, 80)) < 0.6 * item_rate * (0.3 + 0.7 * user_rate[:, None])
    users, items = np.nonzero(shown)
    return Interactions(users, items, liked[shown], 400, 80), float(liked.mean())


def test_exposure_recovers_the_base_rate_of_a_log_of_impressions() -> None:
    log, truth = shown_world(0)
    propensity = Exposure().fit(log).predict(log.users, log.items)
    evidence = cr.impressions(log.labels, propensity)
    estimate = evidence.positive.sum() / evidence.total.sum()
    assert log.labels.mean() > 1.4 * truth
    assert estimate == pytest.approx(truth, rel=0.05)
    by_item = Exposure(by_user=False).fit(log).predict(log.users, log.items)
    evidence = cr.impressions(log.labels, by_item)
    assert evidence.positive.sum() / evidence.total.sum() > 1.1 * truth


def test_exposure_counts_dislikes_as_well() -> None:
    log = Interactions([1, 2, 3, 4], ["a", "b", "b", "b"], [1, 1, 0, 0])
    fitted = Exposure(by_user=False, clip=0.4).fit(log)
    np.testing.assert_allclose(fitted.predict([1, 1, 1], ["a", "b", "new"]), [0.4, 1, 0.4])
    with pytest.raises(cr.DataError, match="must hold an impression to estimate exposure"):
        Exposure().fit(Interactions([], []))
    with pytest.raises(cr.DataError, match=r"clip must lie in \(0, 1\], got 0"):
        Exposure(clip=0)


def test_a_score_table_of_impressions_divides_both_classes() -> None:
    table = ScoreTable([1, 2], [1, 2], [0.0, 1.0], [0, 1], propensity=[0.5, 0.25])
    assert table.impressions().total.tolist() == [2, 4]
    assert table.impressions().positive.tolist() == [0, 4]
