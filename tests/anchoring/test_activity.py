"""The base rate assumed from activity: where it holds, where it fails, where it refuses."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import chi2, multivariate_normal, norm

import calibrank as cr
from calibrank.anchoring import activity as activity_module
from calibrank.anchoring import assume_rate_from_activity, to_assumed_rate
from calibrank.anchoring.activity import _FAMILIES, _clayton, _fit, _frank, _gaussian, _Groups
from calibrank.tables import Interactions
from tests.shown_world import make_shown_world

SMALL = {"n_users": 500, "n_items": 150}


@pytest.mark.parametrize("selection", [0.4, 1.0, 1.6])
def test_the_rate_is_recovered_where_the_assumption_holds(selection: float) -> None:
    world = make_shown_world(1_200, 250, selection=selection)
    assumed = assume_rate_from_activity(world.log)
    share = world.log.labels.mean()
    assert assumed.low <= world.rate <= assumed.high
    # Nearer to the truth than the share of likes among shown pairs, which is far too high.
    assert abs(np.log(assumed.rate / world.rate)) < 0.35
    assert np.log(share / world.rate) > 0.7


@pytest.mark.parametrize("effects", [(0.2, 0.6), (0.8, 1.2)], ids=["moderate", "strong"])
def test_where_the_assumption_fails_the_band_holds_the_truth_or_it_refuses(
    effects: tuple[float, float],
) -> None:
    """A law: in at least 90% of draws, whatever the selection and the effect of activity."""
    covered = []
    settings = np.random.default_rng(0)
    for seed in range(20):
        effect = settings.choice([-1, 1]) * settings.uniform(*effects)
        world = make_shown_world(
            **SMALL,
            rate=settings.uniform(0.05, 0.3),
            selection=settings.uniform(0.3, 1.6),
            activity_effect=effect,
            seed=seed,
        )
        try:
            assumed = assume_rate_from_activity(world.log)
        except cr.FitError:
            covered.append(True)
            continue
        covered.append(assumed.low <= world.rate <= assumed.high)
    assert np.mean(covered) >= 0.9


def test_it_refuses_where_a_log_cannot_tell() -> None:
    rng = np.random.default_rng(0)
    users = np.repeat(np.arange(300), 24)
    labels = rng.random(len(users)) < 0.3
    same = Interactions(users, rng.integers(0, 300, len(users)), labels)
    with pytest.raises(cr.FitError, match=r"must differ by a factor of 3 or more .* got 1\."):
        assume_rate_from_activity(same)
    with pytest.raises(cr.FitError, match="at least 200 users"):
        assume_rate_from_activity(same.take(users < 100))
    world = make_shown_world(**SMALL)
    with pytest.raises(cr.DataError, match="must hold likes and dislikes, got one of them only"):
        assume_rate_from_activity(world.log.positives())
    # Active users like nearly everything and others nearly nothing: no dependence explains that.
    counts = np.bincount(world.log.users)[world.log.users]
    reversed_share = (rng.random(len(counts)) < np.where(counts > 12, 0.9, 0.05)).astype(float)
    strange = Interactions(world.log.users, world.log.items, reversed_share, 500, 150)
    with pytest.raises(cr.FitError, match="must fit a dependence"):
        assume_rate_from_activity(strange)


@pytest.mark.parametrize("name", _FAMILIES)
def test_a_family_is_the_share_of_likes_among_shown_pairs(name: str) -> None:
    share = _FAMILIES[name]
    activity = np.array([0.01, 0.2, 0.999])
    for tau in (0.0, 0.3, 0.8):
        found = share(activity, np.full((1, 3), 0.2), tau)[0]
        # Everything is shown: the share is the rate. Independence: so it is everywhere.
        assert found[2] == pytest.approx(0.2, abs=0.002)
        assert (np.diff(found) <= 1e-9).all()
        if tau == 0:
            np.testing.assert_allclose(found, 0.2, atol=1e-6)


def test_families_agree_with_drawn_copulas() -> None:
    rng = np.random.default_rng(1)
    size, tau, rate = 400_000, 0.4, 0.25
    first = rng.random(size)
    uniform = rng.random(size)
    theta = 2 * tau / (1 - tau)
    # Conditional sampling from a Clayton copula.
    second = (first**-theta * (uniform ** (-theta / (1 + theta)) - 1) + 1) ** (-1 / theta)
    for activity in (0.05, 0.3):
        drawn = (second[first < activity] < rate).mean()
        asked = np.array([activity])
        assert _clayton(asked, np.array([[rate]]), tau)[0, 0] == pytest.approx(drawn, abs=0.01)
    correlation = np.sin(np.pi * tau / 2)
    normal = rng.multivariate_normal([0, 0], [[1, correlation], [correlation, 1]], size)
    shown = normal[:, 0] < np.quantile(normal[:, 0], 0.1)
    drawn = (normal[shown, 1] < np.quantile(normal[:, 1], rate)).mean()
    found = _gaussian(np.array([0.1]), np.array([[rate]]), tau)[0, 0]
    assert found == pytest.approx(drawn, abs=0.01)
    # Frank's tau is that of its copula, by numerical integration of C dC on a grid.
    places = (np.arange(400) + 0.5) / 400
    joint = _frank(places, np.tile(places[:, None], (1, 400)), tau) * places
    mass = np.diff(np.diff(joint, axis=0), axis=1)
    inner = joint[:-1, :-1] / 4 + joint[1:, 1:] / 4 + joint[:-1, 1:] / 4 + joint[1:, :-1] / 4
    assert 4 * (inner * mass).sum() / mass.sum() - 1 == pytest.approx(tau, abs=0.02)


@pytest.mark.parametrize("tau", [0.1, 0.5, 0.8])
def test_families_are_copulas_by_their_definition(tau: float) -> None:
    """P(liked and shown) / P(shown), with the parameter that has this Kendall's tau."""
    activity, rates = np.array([0.02, 0.3, 0.7]), np.array([[0.1] * 3, [0.6] * 3])
    correlation = np.sin(np.pi * tau / 2)
    normal = multivariate_normal([0, 0], [[1, correlation], [correlation, 1]])
    clayton = 2 * tau / (1 - tau)

    def excess(theta: float) -> float:
        debye = quad(lambda t: t / np.expm1(t), 0, theta)[0] / theta
        return 1 - 4 / theta * (1 - debye) - tau

    frank = brentq(excess, 1e-3, 200)
    joint = {
        "Gaussian": lambda a, r: normal.cdf(norm.ppf([a, r])),
        "Clayton": lambda a, r: (a**-clayton + r**-clayton - 1) ** (-1 / clayton),
        "Frank": lambda a, r: (
            -np.log1p(np.expm1(-frank * a) * np.expm1(-frank * r) / np.expm1(-frank)) / frank
        ),
    }
    for name, share in _FAMILIES.items():
        expected = [
            [joint[name](a, r) / a for a, r in zip(activity, row, strict=True)] for row in rates
        ]
        np.testing.assert_allclose(share(activity, rates, tau), expected, atol=1e-4)


def test_users_are_grouped_by_activity_with_the_error_of_a_ratio() -> None:
    world = make_shown_world(**SMALL)
    log = world.log
    groups = _Groups.of(log)
    shown = np.bincount(log.users)
    liked = np.bincount(log.users, log.labels)
    liked, shown = liked[shown > 0], shown[shown > 0]
    parts: dict[int, list[int]] = {}
    for user, count in enumerate(shown):
        # An eighth of the shown pairs each, by the pairs of users who are shown less.
        parts.setdefault(int(8 * shown[shown < count].sum() / shown.sum()), []).append(user)
    members = [np.array(parts[part]) for part in sorted(parts)]
    assert 4 <= len(members) <= 8
    assert len(groups.activity) == len(members)
    for place, own in enumerate(members):
        total = shown[own].sum()
        share = liked[own].sum() / total
        residuals = liked[own] - share * shown[own]
        sandwich = len(own) * residuals.var(ddof=1) / total**2
        binomial = share * (1 - share) / total
        model = (0.1 * share * (1 - share)) ** 2
        assert groups.share[place] == pytest.approx(share)
        assert groups.variance[place] == pytest.approx(max(sandwich, binomial) + model)
        assert groups.activity[place] == pytest.approx(shown[own].mean() / log.n_items)
        assert groups.users[place] == pytest.approx(len(own) / len(shown))
    logs = np.log(groups.activity)
    z = (logs - np.average(logs, weights=groups.users)) / np.sqrt(
        np.cov(logs, aweights=groups.users, ddof=0)
    )
    np.testing.assert_allclose(groups.standardised, z)


def test_a_group_that_likes_nothing_still_has_an_error() -> None:
    users = np.repeat(np.arange(400), np.maximum(2, np.arange(400) // 10 - 10))
    items = np.arange(len(users)) % 30
    labels = (np.random.default_rng(0).random(len(users)) < 0.5) & (users >= 250)
    groups = _Groups.of(Interactions(users, items, labels.astype(float), 400, 30))
    total = groups.activity[0] * 30 * groups.users[0] * 400
    assert groups.share[0] == 0
    assert groups.variance[0] == pytest.approx(1 / total**2)
    assert (groups.variance > 0).all()
    # Repeated pairs may be more than there are items, which is all of them.
    few = Interactions(users, items % 5, labels.astype(float), 400, 5)
    assert _Groups.of(few).activity.max() == 1


def test_the_band_is_all_rates_that_are_not_rejected() -> None:
    """Rates, dependences on the rate and on activity, and families, one by one."""
    activity = np.geomspace(0.02, 0.5, 8)
    users = np.full(8, 1 / 8)
    share = _frank(activity, np.full((1, 8), 0.15), 0.4)[0]
    groups = _Groups(activity, share, np.full(8, 0.02**2), users)
    critical = chi2.ppf(0.95, 8)
    rates = expit(np.linspace(-6.5, 4.5, 89))
    standard = np.log(activity) - np.log(activity).mean()
    standard /= standard.std()
    for family in (_clayton, _frank):
        found, misfits, best = _fit(groups, family)
        expected = []
        for dependence in np.linspace(-0.75, 0.75, 7):
            for rate in rates:
                by_group = expit(np.log(rate / (1 - rate)) + dependence * standard)
                own = [
                    (((family(activity, by_group[None], tau)[0] - share) / 0.02) ** 2).sum()
                    for tau in np.linspace(0, 0.96, 49)[::6]
                ]
                expected.append((by_group.mean(), min(own), dependence))
        np.testing.assert_allclose(found, [rate for rate, *_ in expected])
        # Every sixth dependence is tried here, so that no misfit is smaller than the found one.
        assert (misfits <= np.array([misfit for _, misfit, _ in expected]) + 1e-9).all()
        centre = len(rates) * 3
        own = misfits[centre : centre + len(rates)]
        assert best == pytest.approx((rates[own.argmin()], own.min()))
    # The truth is one of Frank's family without a dependence on activity.
    assert best[0] == pytest.approx(0.15, rel=0.15)
    assert best[1] < 1 < critical < misfits.max()
    assert abs(activity_module._CRITICAL - critical) < 0.01


def test_the_rate_is_that_of_the_gaussian_family_where_it_is_not_rejected() -> None:
    """Here Frank's fits better by chance."""
    log = make_shown_world(500, 150, selection=1.0, seed=8).log
    assumed = assume_rate_from_activity(log)
    groups = _Groups.of(log)
    best = {name: _fit(groups, share)[2] for name, share in _FAMILIES.items()}
    assert "Gaussian" in assumed.families
    assert assumed.rate == pytest.approx(np.clip(best["Gaussian"][0], assumed.low, assumed.high))
    assert best["Frank"][1] < best["Gaussian"][1]
    assert best["Frank"][0] < 0.8 * best["Gaussian"][0]
    # All rates of any family that are not rejected are in the band, and no others.
    accepted = [
        rates[misfits <= activity_module._CRITICAL]
        for rates, misfits, _ in (_fit(groups, share) for share in _FAMILIES.values())
    ]
    rates = np.concatenate(accepted)
    assert (assumed.low, assumed.high) == (rates.min(), rates.max())


def test_a_moved_map_keeps_the_band_and_says_that_it_is_assumed(tmp_path) -> None:
    world = make_shown_world(**SMALL)
    log = world.log
    fitted = cr.Gaussian().fit(world.scores[log.users, log.items], cr.impressions(log.labels))
    assumed = assume_rate_from_activity(log)
    moved = to_assumed_rate(fitted, assumed, world.scores.ravel())
    assert moved.predict(world.scores.ravel()).mean() == pytest.approx(assumed.rate, rel=1e-6)
    assert moved.record.base_rate_source == "assumed"
    assert moved.record.base_rate_range == pytest.approx((assumed.low, assumed.high), rel=1e-4)
    moved.save(tmp_path / "map.json")
    again = cr.load(tmp_path / "map.json")
    assert again.record == moved.record
    assert not again.record.is_base_rate_known
    assert "About 100 labels of randomly shown pairs" in again.record.base_rate_description
    assert "About 100 labels" in str(assumed)
