"""A map at a known rate whose slope is implausible is expected to be worse than the constant."""

import warnings

import numpy as np
import pytest
from scipy.special import expit

import calibrank as cr
from calibrank.anchoring import compare_with_constant
from calibrank.anchoring.constant_check import TYPICAL_SPREAD, check_against_constant
from calibrank.errors import WorseThanConstantWarning
from calibrank.metrics import LogLossGain

RATE = 0.2


def biased_map(slope: float, evidence: str = "ips") -> tuple[cr.CalibrationMap, np.ndarray]:
    """A map with this slope per standard deviation of its scores, and the scores."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=20_000)
    labels = (rng.random(20_000) < expit(slope * scores - 3)).astype(float)
    known = cr.naive(labels) if evidence == "naive" else cr.ips(labels, np.full(20_000, 1.0))
    return cr.Platt().fit(scores, known), scores


def test_a_steep_map_gives_a_warning_with_its_size() -> None:
    fitted, scores = biased_map(1.5)
    with pytest.warns(WorseThanConstantWarning, match="standard deviation of 1.5") as found:
        moved = cr.to_base_rate(fitted, RATE, scores)
    assert found[0].filename == __file__
    check = compare_with_constant(moved, scores)
    assert f"its log loss is {-check.expected_gain:.4f} higher" in str(found[0].message)
    # By construction: labels whose log odds have the typical spread.
    log_odds = moved.log_odds(scores)
    slope = TYPICAL_SPREAD / log_odds.std()
    level = np.linspace(-5, 0, 5_001)
    sums = [expit(slope * log_odds + each).mean() for each in level[::50]]
    truth = expit(slope * log_odds + np.interp(RATE, sums, level[::50]))
    evidence = cr.Evidence(truth, np.ones_like(truth))
    gain = LogLossGain()(moved.predict(scores), evidence)
    assert gain == pytest.approx(check.expected_gain, abs=1e-4)
    assert gain < 0


@pytest.mark.parametrize(
    ("slope", "evidence", "top_rate"), [(0.5, "ips", None), (1.5, "naive", None), (1.5, "ips", 0.4)]
)
def test_plausible_and_known_slopes_give_none(
    slope: float, evidence: str, top_rate: float | None
) -> None:
    fitted, scores = biased_map(slope, evidence)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cr.to_base_rate(fitted, RATE, scores, top_rate)


def test_the_expected_gain_falls_with_the_spread() -> None:
    scores = np.random.default_rng(1).normal(size=2_000)
    mass = np.full(2_000, 1 / 2_000)
    gains = []
    for slope in (0.45, 0.7, 1.0, 1.5, 3.0):
        log_odds = slope * scores
        rate = float(expit(log_odds - 2).mean())
        gains.append(check_against_constant(log_odds - 2, mass, rate).expected_gain)
    assert gains[0] > 0 > gains[-1]
    assert gains[1:] == sorted(gains[1:], reverse=True)


def test_a_map_without_a_known_rate_cannot_be_compared() -> None:
    fitted, scores = biased_map(1.0)
    with pytest.raises(cr.DataError, match="must be at a known base rate"):
        compare_with_constant(fitted, scores)
