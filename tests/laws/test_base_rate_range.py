"""The range of base rates in worlds where exposure depends on item, user and preference.

The settings of these worlds, and `EXPOSURE_FACTOR`, were chosen before any real log was looked at.
"""

from dataclasses import dataclass

import numpy as np
import pytest

import calibrank as cr
from calibrank._internal.logit import expit
from calibrank.anchoring import PropensityModel
from calibrank.anchoring.known_rate import shift_for
from calibrank.propensity import Popularity

USERS = 120
ITEMS = 90
DRAWS = 20


@dataclass(frozen=True)
class Setting:
    """A base rate, a mean exposure, and how strongly log exposure depends on each cause."""

    rate: float
    exposed: float
    activity: float
    preference: float

    @property
    def name(self):
        return f"rate {self.rate}, exposed {self.exposed}, preference {self.preference}"


SETTINGS = (
    Setting(rate=0.3, exposed=0.1, activity=1.0, preference=0.5),
    Setting(rate=0.3, exposed=0.05, activity=1.0, preference=1.0),
    Setting(rate=0.3, exposed=0.02, activity=0.5, preference=2.0),
    Setting(rate=0.6, exposed=0.05, activity=1.0, preference=1.0),
    Setting(rate=0.1, exposed=0.3, activity=2.0, preference=2.0),
    Setting(rate=0.02, exposed=0.5, activity=1.0, preference=0.5),
)


@dataclass(frozen=True)
class Log:
    """Scores and labels of all pairs, the popularity of their items, and the truth."""

    scores: np.ndarray
    labels: np.ndarray
    items: np.ndarray
    exposure: np.ndarray
    true_exposure: np.ndarray
    base_rate: float


def draw(setting, ranker, seed):
    """A world in which liked pairs, active users and popular items are exposed more often."""
    rng = np.random.default_rng(seed)
    users = np.repeat(np.arange(USERS), ITEMS)
    items = np.tile(np.arange(ITEMS), USERS)
    quality = rng.normal(size=ITEMS)
    taste = rng.normal(size=(USERS, 3)) @ rng.normal(size=(3, ITEMS))
    utility = 0.5 * quality[items] + 0.4 * taste.ravel() + 0.5 * rng.normal(size=USERS)[users]
    utility = (utility - utility.mean()) / utility.std()
    uniform = np.full(len(users), 1 / len(users))
    preference = expit(1.5 * utility + shift_for(1.5 * utility, uniform, setting.rate))
    popularity = 0.8 * rng.normal(size=ITEMS) + 0.4 * quality
    activity = setting.activity * rng.normal(size=USERS)
    log_exposure = popularity[items] + activity[users] + setting.preference * utility
    true_exposure = _scaled(log_exposure, setting.exposed)
    observed = rng.random(len(users)) < preference * true_exposure
    labels = observed.astype(float)
    counts = np.bincount(items[observed], minlength=ITEMS)
    return Log(
        scores=ranker(utility, popularity[items], rng),
        labels=labels,
        items=items,
        exposure=(counts / counts.max())[items],
        true_exposure=true_exposure,
        base_rate=float(preference.mean()),
    )


def _scaled(log_exposure, mean):
    """Exposures of at most 1 with a given mean, by bisection."""
    low, high = -20.0, 20.0
    for _ in range(50):
        middle = (low + high) / 2
        exposure = np.minimum(np.exp(log_exposure + middle), 1)
        if exposure.mean() > mean:
            high = middle
        else:
            low = middle
    return exposure


def smooth(utility, _popularity, rng):
    return utility + 0.7 * rng.normal(size=len(utility))


def heavy_tailed(utility, popularity, rng):
    """As the inner products of matrix factorization: skewed, and higher for popular items."""
    return np.exp(0.6 * (utility + 0.6 * popularity + 0.5 * rng.normal(size=len(utility))))


def piled_up(utility, popularity, rng):
    """As a few boosted trees: a dozen distinct scores."""
    raw = utility + 0.5 * popularity + 0.7 * rng.normal(size=len(utility))
    return np.clip(np.round(2 * raw) / 2, -2, 3)


def from_items(log):
    return cr.fit_with_sensitivity(cr.Platt(), log.scores, log.labels, log.exposure)


def from_relative_propensities(log):
    popularity = Popularity()
    relative = popularity.propensity(log.exposure)
    model = PropensityModel(power=1, clip=0)
    return cr.fit_with_sensitivity(cr.Platt(), log.scores, log.labels, relative, model)


def holds(fitted, base_rate):
    """Whether the printed range contains the truth, or the output says that it cannot tell."""
    band = fitted.record.sensitivity
    if band.low_rate <= base_rate <= band.high_rate:
        return True
    return "cannot tell" in band.description and band.low_rate <= base_rate


@pytest.mark.parametrize("fit", [from_items, from_relative_propensities])
@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_the_range_contains_the_truth_or_says_that_it_cannot_tell(setting, fit):
    rankers = (smooth, heavy_tailed, piled_up)
    found = []
    for seed in range(DRAWS):
        log = draw(setting, rankers[seed % len(rankers)], seed)
        found.append(holds(fit(log), log.base_rate))
    assert np.mean(found) >= 0.9


def test_full_exposure_is_not_excluded():
    """Items may be popular because they are liked: then the observed positives are all likes."""
    setting = Setting(rate=0.05, exposed=1.0, activity=1.0, preference=1.0)
    found = []
    for seed in range(DRAWS):
        log = draw(setting, smooth, seed)
        found.append(from_items(log).record.sensitivity.low_rate <= log.base_rate)
    assert np.mean(found) >= 0.9


def test_a_range_is_printed_where_it_is_narrow():
    """A ranker that finds a few likes in a large catalogue limits their number."""
    rng = np.random.default_rng(0)
    preference = expit(rng.normal(-14, 4.5, 200_000))
    exposure = rng.uniform(0.5, 1, len(preference))
    labels = (rng.random(len(preference)) < preference * exposure).astype(float)
    fitted = cr.fit_with_sensitivity(cr.Platt(), np.log(preference), labels, exposure)
    band = fitted.record.sensitivity
    assert band.is_informative
    assert band.low_rate < preference.mean() < band.high_rate < 0.2
    words = band.description
    assert words.startswith("If the propensities are right up to a factor and a power, give or")
    assert "take a factor of 10 for users and preference" in words
    assert "cannot tell" not in words


def test_logged_propensities_keep_a_narrow_range():
    log = draw(Setting(rate=0.3, exposed=0.3, activity=1.0, preference=1.0), smooth, 0)
    logged = cr.fit_with_sensitivity(
        cr.Platt(),
        log.scores,
        log.labels,
        log.true_exposure,
        PropensityModel(power=1, clip=0),
        scale_known=True,
    )
    band = logged.record.sensitivity
    assert band.exposure_factor == 1
    assert band.low_rate < log.base_rate < band.high_rate < 0.75
    assert "If the logged propensities are right, the base rate lies" in band.description


def test_weights_of_sampled_negatives_give_the_range_of_all_pairs():
    log = draw(SETTINGS[0], smooth, 1)
    rng = np.random.default_rng(1)
    kept = (log.labels == 1) | (rng.random(len(log.labels)) < 0.3)
    weights = cr.undersampling_weights(log.labels[kept], kept=0.3)
    sample = (log.scores[kept], log.labels[kept], log.exposure[kept])
    whole = from_items(log).record.sensitivity
    sampled = cr.fit_with_sensitivity(cr.Platt(), *sample, weights=weights).record.sensitivity
    unweighted = cr.fit_with_sensitivity(cr.Platt(), *sample).record.sensitivity
    assert sampled.low_rate == pytest.approx(whole.low_rate, rel=0.05)
    assert unweighted.low_rate > 2 * whole.low_rate
    with pytest.raises(cr.DataError, match="weights must"):
        cr.fit_with_sensitivity(cr.Platt(), *sample, weights=-weights)
