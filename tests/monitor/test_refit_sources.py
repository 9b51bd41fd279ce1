"""A refit makes what was deployed: every source of a base rate, with and without a level."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import calibrank as cr
from calibrank.anchoring import to_base_rate, undo_undersampling
from calibrank.monitor import Day, check, refit
from calibrank.monitor.day import LevelRows
from calibrank.terms import Position
from tests.monitor.worlds import date_of

MODELS = {"score": cr.Platt(), "level": cr.Platt() + cr.Level("country")}
EFFECTS = {"NL": -0.7, "DE": 0.7}
SCORES = np.array([-1.0, 0.0, 1.0])
KEPT = 0.1


class World:
    """Log odds are 1.2 * score - 2 and an effect per country, shifted by a change."""

    def __init__(self, seed: int, rows: int = 20_000, change: float = 0.0) -> None:
        rng = np.random.default_rng(seed)
        self.scores = rng.normal(size=rows)
        self.country = rng.choice(["NL", "DE"], rows)
        effects = np.where(self.country == "NL", EFFECTS["NL"], EFFECTS["DE"])
        self.log_odds = 1.2 * self.scores - 2 + effects + change
        self.labels = (rng.random(rows) < 1 / (1 + np.exp(-self.log_odds))).astype(float)
        self.noise = rng.random(rows)

    @property
    def columns(self) -> dict[str, Any]:
        return {"country": self.country}

    def rows(self, chosen: np.ndarray) -> "World":
        part = object.__new__(World)
        part.__dict__ = {name: values[chosen] for name, values in self.__dict__.items()}
        return part

    def sampled(self) -> "World":
        """All positives and a tenth of the negatives."""
        return self.rows((self.labels == 1) | (self.noise < KEPT))

    def fit(self, model: Any) -> cr.CalibrationMap:
        columns = self.columns if isinstance(model, cr.Model) else None
        return model.fit(self.scores, self.labels, columns)

    def day(self, fitted: cr.CalibrationMap) -> Day:
        return Day.of(fitted, self.scores, self.labels, date=date_of(0), columns=self.columns)


def log_odds(fitted: cr.CalibrationMap) -> np.ndarray:
    columns = {"country": np.repeat(["NL", "DE"], 3)}
    return fitted.log_odds(np.tile(SCORES, 2), columns)


@pytest.mark.parametrize("model", MODELS)
def test_an_anchored_map_is_anchored_again(model: str) -> None:
    # A biased log, whose level and country effects are off, anchored on random labels.
    biased = World(0, change=1.5).fit(MODELS[model])
    random = World(1, 1_000)
    deployed = cr.anchor(biased, random.scores, random.labels, random.columns)
    now = World(2, 5_000, change=-0.8)
    new = refit(deployed, now.day(deployed))
    assert new.record.base_rate_source == "random labels"
    assert new.record.anchoring.labels == 5_000
    assert new.record.previous_map == deployed.digest
    expected = cr.anchor(deployed, now.scores, now.labels, now.columns)
    assert log_odds(new) == pytest.approx(log_odds(expected), abs=0.05)
    # Of five standard errors from the truth, where a level tells the countries apart.
    if model == "level":
        truth = np.add.outer([-0.7, 0.7], 1.2 * SCORES - 2.8).ravel()
        assert log_odds(new) == pytest.approx(truth, abs=0.35)
    else:
        rate = new.predict(now.scores).mean()
        assert rate == pytest.approx(now.labels.mean(), rel=0.1)


@pytest.mark.parametrize("top_rate", [None, 0.15])
@pytest.mark.parametrize("model", MODELS)
def test_a_known_rate_stays_known(model: str, top_rate: float | None) -> None:
    log = World(0)
    fitted = log.fit(MODELS[model])
    columns = log.columns if fitted.terms else None
    deployed = to_base_rate(fitted, 0.05, log.scores, top_rate, (0.04, 0.06), columns)
    now = World(1, change=-0.5)
    new = refit(deployed, now.day(deployed))
    for name in ("base_rate_source", "base_rate", "base_rate_range", "top_rate"):
        assert getattr(new.record, name) == getattr(deployed.record, name)
    assert new.predict(now.scores, now.columns).mean() == pytest.approx(0.05, rel=1e-3)
    expected = to_base_rate(now.fit(MODELS[model]), 0.05, now.scores, top_rate, None, now.columns)
    assert log_odds(new) == pytest.approx(log_odds(expected), abs=0.02)


@pytest.mark.parametrize("model", MODELS)
def test_sampled_negatives_are_corrected_for_again(model: str) -> None:
    deployed = undo_undersampling(World(0, 50_000).sampled().fit(MODELS[model]), KEPT)
    assert deployed.predict(0.0, {"country": ["NL"]}) < 0.15
    same, changed = World(1, 50_000).sampled(), World(2, 50_000, change=-0.8).sampled()
    # The days are sampled as the log was, and right.
    assert not check(deployed, [same.day(deployed)]).alarm
    new = refit(deployed, changed.day(deployed))
    assert new.record.negatives_kept == KEPT
    assert log_odds(new) == pytest.approx(log_odds(deployed) - 0.8, abs=0.15)
    assert log_odds(new) == pytest.approx(
        log_odds(undo_undersampling(changed.fit(MODELS[model]), KEPT)), abs=0.01
    )


def test_sampled_negatives_and_a_known_rate() -> None:
    log = World(0, 50_000).sampled()
    deployed = to_base_rate(undo_undersampling(log.fit(cr.Platt()), KEPT), 0.03, log.scores)
    new = refit(deployed, World(1).sampled().day(deployed))
    assert new.record.negatives_kept == KEPT
    assert new.record.base_rate == 0.03


def test_random_labels_of_an_anchored_map_are_not_sampled() -> None:
    sampled = undo_undersampling(World(0, 50_000).sampled().fit(cr.Platt()), KEPT)
    random = World(1, 2_000)
    deployed = cr.anchor(sampled, random.scores, random.labels)
    now = World(2, 5_000)
    assert not check(deployed, [now.day(deployed)]).alarm
    assert refit(deployed, now.day(deployed)).predict(now.scores).mean() == pytest.approx(
        now.labels.mean(), rel=0.1
    )


def refused(fitted: cr.CalibrationMap, reason: str) -> None:
    """It is refused before the days are looked at."""
    with pytest.raises(cr.DataError, match=reason):
        refit(fitted, "no day")  # type: ignore[arg-type]


def test_what_days_do_not_hold_is_refused_first() -> None:
    log = World(0)
    propensity = np.where(log.noise < 0.5, 0.5, 0.9)
    weighted = cr.Platt().fit(log.scores, cr.ips(log.labels, propensity))
    refused(weighted, "weighted evidence must not go with refit: .* propensities .* Fit again")
    refused(
        to_base_rate(weighted, 0.05, log.scores, top_rate=0.1),
        "weighted evidence must not go with refit",
    )
    rows = {**log.columns, "price": log.noise, "device": log.country}
    smooth = (cr.Platt() + cr.Smooth("price")).fit(log.scores, log.labels, rows)
    refused(smooth, "Smooth must not go with refit: .* need rows. Fit or anchor again on the rows")
    levels = (cr.Platt() + cr.Level("country") + cr.Level("device")).fit(
        log.scores, log.labels, rows
    )
    refused(levels, "several levels must not go with refit")
    ranks = {"rank": np.tile(np.arange(1.0, 21.0), 50)}
    few = log.rows(np.arange(1_000))
    first = cr.anchor(
        cr.Platt().fit(log.scores, log.labels),
        few.scores,
        few.labels,
        ranks,
        terms=[Position("rank", n=3)],
    )
    refused(first, "Position must not go with refit")
    groups = {"query": np.repeat(np.arange(50), 20)}
    grouped = (cr.Platt() + cr.Group("query")).fit(few.scores, few.labels, groups)
    refused(grouped, "Group must not go with refit")
    plain = log.fit(cr.Platt())
    assumed = replace(plain, record=replace(plain.record, base_rate=0.1))
    refused(assumed, "a rate assumed from activity must not go with refit")
    old = replace(plain, record=replace(plain.record, recipe=None, method="Platt by country"))
    refused(old, "must say how it was fitted, got the method 'Platt by country' .* Fit it again")


def test_an_ips_map_that_was_anchored_needs_no_propensities() -> None:
    log, random, now = World(0), World(1, 500), World(2, 3_000)
    weighted = cr.Platt().fit(log.scores, cr.ips(log.labels, np.full(len(log.scores), 0.7)))
    deployed = cr.anchor(weighted, random.scores, random.labels)
    new = refit(deployed, now.day(deployed))
    assert new.record.evidence == "ips"
    assert new.predict(now.scores).mean() == pytest.approx(now.labels.mean(), rel=0.1)


def test_days_of_other_terms_keep_their_labels_by_level() -> None:
    log = World(0, 4_000)
    rows = {**log.columns, "price": log.noise}
    fitted = (cr.Platt() + cr.Level("country") + cr.Smooth("price")).fit(
        log.scores, log.labels, rows
    )
    day = Day.of(fitted, log.scores, log.labels, date=date_of(0), columns=rows)
    by_level = LevelRows.of(day.by_segment[0])
    predicted = 1 / (1 + np.exp(-by_level.scores)) * by_level.evidence.total
    probabilities = fitted.predict(log.scores, rows)
    for country in EFFECTS:
        mine = by_level.columns["country"] == country
        own = log.country == country
        assert by_level.evidence.positive[mine].sum() == log.labels[own].sum()
        assert predicted[mine].sum() == pytest.approx(probabilities[own].sum(), rel=1e-3)
