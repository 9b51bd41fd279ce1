"""Sensitivity bands, against fits of the whole log under each propensity model."""

import numpy as np
import pytest

import calibrank as cr
from calibrank._internal.logit import expit, logit
from calibrank.anchoring import PropensityModel, _alternatives
from calibrank.anchoring._alternatives import Positives, ScoreGroups
from calibrank.anchoring.sensitivity import EXPOSURE_FACTOR
from calibrank.summary import Summary

# Within 2.88 standard errors: of 25 bins, the highest exceeds that with probability 5%.
ERRORS = 2.88


class Log:
    """A log whose scores are few, so that each is a group of its own."""

    def __init__(self, rows: int = 6_000, levels: int = 60) -> None:
        rng = np.random.default_rng(0)
        self.scores = np.sort(rng.normal(size=levels))[rng.integers(levels, size=rows)]
        self.exposure = rng.uniform(0.05, 1, rows)
        chances = self.exposure**0.5 * expit(self.scores - 1)
        self.labels = (rng.random(rows) < chances).astype(float)
        self.weights = np.where(self.labels == 1, 1.0, rng.uniform(1, 3, rows))

    def evidence(self, model: PropensityModel) -> cr.Evidence:
        propensity = np.maximum(self.exposure**model.power, model.clip)
        weights = self.weights * np.where(self.labels == 1, 1.0, model.negatives)
        return cr.ips(self.labels, propensity, weights=weights)

    def banded(self, model: PropensityModel, *, scale_known: bool = False) -> cr.CalibrationMap:
        return cr.fit_with_sensitivity(
            cr.Platt(),
            self.scores,
            self.labels,
            self.exposure,
            model,
            weights=self.weights,
            scale_known=scale_known,
        )


@pytest.fixture(scope="module")
def log() -> Log:
    return Log()


def rate_error(evidence: cr.Evidence) -> float:
    """Of a sum of inverse-propensity positives: its variance is the sum of their squares."""
    return float(ERRORS * np.sqrt((evidence.positive**2).sum()) / evidence.total.sum())


def highest_preference(log: Log, evidence: cr.Evidence) -> float:
    """By sorting: the highest lower bound of a rate, in 19 bins of 5% and narrower ones above."""
    order = np.argsort(log.scores, kind="stable")
    edges = [*np.linspace(0, 0.9, 19), 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 1.0]
    # A group of equal scores is in the bin of its middle.
    total = evidence.total[order]
    _, group = np.unique(log.scores[order], return_inverse=True)
    sums = np.bincount(group, total)
    middles = (np.cumsum(sums) - sums / 2) / sums.sum()
    bins = np.digitize(middles, edges)[group]
    positive = evidence.positive[order]
    lower = [positive.sum() / total.sum() - rate_error(evidence)]
    for one in np.unique(bins):
        own = bins == one
        error = ERRORS * np.sqrt((positive[own] ** 2).sum())
        lower.append((positive[own].sum() - error) / total[own].sum())
    return float(np.clip(max(lower), 1e-3, 1))


@pytest.mark.parametrize("model", [PropensityModel(), PropensityModel(1.0, 0.02, 0.5)], ids=str)
def test_each_alternative_is_a_fit_of_the_whole_log(log: Log, model: PropensityModel) -> None:
    fitted = log.banded(model)
    band = fitted.record.sensitivity
    models = {
        "all pairs exposed": PropensityModel(0.0, model.clip, model.negatives),
        f"clip {model.clip / 2:g}": PropensityModel(model.power, model.clip / 2, model.negatives),
        f"clip {model.clip * 2:g}": PropensityModel(model.power, model.clip * 2, model.negatives),
        "half the negatives": PropensityModel(model.power, model.clip, model.negatives / 2),
        "twice the negatives": PropensityModel(model.power, model.clip, model.negatives * 2),
    }
    for factor in (0.5, 1.5, 2.0):
        power = model.power * factor
        models[f"power {power:g}"] = PropensityModel(power, model.clip, model.negatives)
    models["as chosen"] = model
    assert {each.name for each in band.alternatives} == set(models)
    assert band.alternatives[0].name == "as chosen"
    scores = np.array(band.scores)
    interval = fitted.sampling_interval(scores)
    middle = fitted.log_odds(scores)
    lowest, highest, low_rates, high_rates = [], [], [], []
    for each in band.alternatives:
        evidence = log.evidence(models[each.name])
        rate = min(evidence.positive.sum() / evidence.total.sum(), 1.0)
        assert each.rate == pytest.approx(rate)
        low_rates.append(rate - rate_error(evidence))
        try:
            refit = cr.Platt().fit(log.scores, evidence)
        except cr.FitError:
            # Only its rate counts, and no preference limits the scale.
            assert each.top_rate is None
            shifted = min(rate, 1 - 1e-6)
            refit = cr.to_base_rate(fitted, shifted, Summary.of(log.scores, evidence))
            scale = 1 / EXPOSURE_FACTOR
        else:
            top = np.argsort(-log.scores, kind="stable")
            mass = evidence.total[top]
            tenth = np.cumsum(mass) <= 0.1 * mass.sum()
            expected = np.average(refit.predict(log.scores[top][tenth]), weights=mass[tenth])
            assert each.top_rate == pytest.approx(expected, rel=0.02)
            scale = highest_preference(log, evidence) / EXPOSURE_FACTOR
        log_odds = refit.log_odds(scores)
        lowest.append(log_odds - (middle - logit(interval.low)))
        raised = expit(log_odds + logit(interval.high) - middle) / scale
        highest.append(logit(np.clip(raised, 1e-6, 1 - 1e-6)))
        high_rates.append(min((rate + rate_error(evidence)) / scale, 1))
    np.testing.assert_allclose(band.low, np.min(lowest, axis=0), atol=1e-4)
    np.testing.assert_allclose(band.high, np.max(highest, axis=0), atol=1e-4)
    assert band.low_rate == pytest.approx(max(min(low_rates), 0))
    assert band.high_rate == pytest.approx(max(high_rates))
    assert (band.exposure_factor, band.assumption) == (EXPOSURE_FACTOR, "relative propensities")


def test_a_known_scale_leaves_the_clip_and_the_negatives(log: Log) -> None:
    fitted = log.banded(PropensityModel(1.0, 0.1), scale_known=True)
    band = fitted.record.sensitivity
    names = ["as chosen", "clip 0.05", "clip 0.2", "half the negatives", "twice the negatives"]
    assert [each.name for each in band.alternatives] == names
    rates, errors, curves = [], [], []
    scores = np.array(band.scores)
    for model in (
        PropensityModel(1.0, 0.1),
        PropensityModel(1.0, 0.05),
        PropensityModel(1.0, 0.2),
        PropensityModel(1.0, 0.1, 0.5),
        PropensityModel(1.0, 0.1, 2.0),
    ):
        evidence = log.evidence(model)
        rates.append(evidence.positive.sum() / evidence.total.sum())
        errors.append(rate_error(evidence))
        curves.append(cr.Platt().fit(log.scores, evidence).log_odds(scores))
    assert band.low_rate == pytest.approx(np.min(np.subtract(rates, errors)))
    assert band.high_rate == pytest.approx(np.max(np.add(rates, errors)))
    # The sampling error of the fit is added to the lowest and the highest curve.
    low, high = [logit(end) - fitted.log_odds(scores) for end in fitted.sampling_interval(scores)]
    np.testing.assert_allclose(band.low, np.min(curves, axis=0) + low, atol=1e-4)
    np.testing.assert_allclose(band.high, np.max(curves, axis=0) + high, atol=1e-4)
    # All of the scores, evenly by their mass, and denser at the ends.
    levels = [0, 0.002, *np.linspace(0.01, 0.99, 29), 0.998, 1]
    distinct, codes = np.unique(log.scores, return_inverse=True)
    mass = np.bincount(codes, log.weights)
    middles = (np.cumsum(mass) - mass / 2) / mass.sum()
    expected = np.interp(levels, middles, distinct)
    expected = expected[np.append(True, np.diff(expected) > 1e-9)]
    np.testing.assert_allclose(scores, expected)
    assert (band.exposure_factor, band.assumption) == (1.0, "logged propensities")


def test_a_highest_clip_is_no_alternative_to_itself() -> None:
    names = [name for name, _ in PropensityModel(0.5, 1.0).alternatives(scale_known=True)]
    assert names == ["clip 0.5", "half the negatives", "twice the negatives"]
    # Without a power, no pair is seen less than another.
    names = [name for name, _ in PropensityModel(0.0, 0.0).alternatives(scale_known=False)]
    assert names == ["clip 0.05", "clip 0.1", "half the negatives", "twice the negatives"]


def test_a_sample_of_positives_stands_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    every = Positives(np.sort(rng.normal(size=1_001)), rng.random(1_001), np.ones(1_001))
    assert every.sample() is every
    monkeypatch.setattr(_alternatives, "_MAX_POSITIVES", 500)
    some = every.sample()
    assert len(some.scores) == 334
    assert some.weights.sum() == pytest.approx(1_001, rel=0.002)
    assert some.scores.mean() == pytest.approx(every.scores.mean(), abs=0.02)
    monkeypatch.setattr(_alternatives, "_MAX_POSITIVES", 1_001)
    assert every.sample() is every


def test_groups_of_neighbours_have_the_sums_of_their_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """More scores than groups: masses stay, positives go to the group that their score is in."""
    monkeypatch.setattr(_alternatives, "_GROUPS", 40)
    log = Log(rows=3_000, levels=3_000)
    model = PropensityModel(0.5, 0.1, 0.5)
    evidence = log.evidence(model)
    is_positive = log.labels == 1
    positives = Positives(
        log.scores[is_positive], log.exposure[is_positive], log.weights[is_positive]
    )
    summary = Summary.of(log.scores, evidence)
    groups = ScoreGroups.of(summary, positives, model, cr.ips)
    assert len(groups.scores) == 40
    found, squares = groups.evidence(model)
    # A sum by sorting: about 1/40 of the mass each.
    np.testing.assert_allclose(found.total, evidence.total.sum() / 40, rtol=0.06)
    assert found.total.sum() == pytest.approx(evidence.total.sum())
    assert found.positive.sum() == pytest.approx(evidence.positive.sum())
    assert squares.sum() == pytest.approx((evidence.positive**2).sum())
    assert groups.scores @ found.total == pytest.approx(log.scores @ evidence.total)
    assert (np.diff(groups.scores) > 0).all()
    order = np.argsort(log.scores)
    ends = np.cumsum(found.total)
    own = np.searchsorted(ends, np.cumsum(evidence.total[order]) - 1e-6)
    np.testing.assert_allclose(found.positive, np.bincount(own, evidence.positive[order]))
    np.testing.assert_allclose(squares, np.bincount(own, evidence.positive[order] ** 2))
    # Without a correction, pairs are counted: a positive is one pair, like each that it stands for.
    assert groups.total.sum() == pytest.approx(log.weights.sum())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (([0, 2, 1], [1.0, 0.5, 0.5]), "labels must be 0 or 1, got 2"),
        (([0, 1, 1], [1.0, 1.5, 0.5]), r"exposure must lie in \[0, 1\], got 1.5"),
        (([0, 1, 1], [1.0, 0.5]), "exposure must"),
    ],
)
def test_labels_and_exposure_are_checked(given: tuple[list[float], ...], message: str) -> None:
    with pytest.raises(cr.DataError, match=message):
        cr.fit_with_sensitivity(cr.Platt(), [0.0, 1.0, 2.0], *given)
    with pytest.raises(cr.DataError, match="weights must"):
        cr.fit_with_sensitivity(cr.Platt(), [0.0, 1.0], [0, 1], [0.5, 0.5], weights=[1.0, -1.0])
    for options in ({"calibrator": "Platt"}, {"propensity_model": 1}, {"scale_known": 1}):
        arguments = {"calibrator": cr.Platt(), "scores": [0.0, 1.0], "labels": [0, 1]}
        with pytest.raises(cr.DataError, match="must be"):
            cr.fit_with_sensitivity(**(arguments | {"exposure": [0.5, 0.5]} | options))
