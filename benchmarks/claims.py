"""Every statistical claim against simulated worlds whose truth is known: claim, measured, allowed.

    python -m benchmarks.claims [tables per line] [parts]

Parts are "intervals", "segments", "assumptions", "metrics", "promises" and "monitor"; all by
default. With 20 tables per line it takes minutes; figures of the documentation are of 60. How good
anchoring is needs files, and is measured by `arena.py`.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable

import numpy as np
from benchmarks import monitor_claims, promises
from scipy.special import expit, logit, ndtr

import calibrank as cr
from calibrank.anchoring import PropensityModel, fit_with_sensitivity
from calibrank.metrics import (
    MCE,
    CalibrationInTheLarge,
    DebiasedECE,
    EqualMassECE,
    Metric,
    Miscalibration,
    multicalibration_test,
)
from calibrank.propensity import estimate_position

TABLES = int(sys.argv[1]) if len(sys.argv) > 1 else 20
ROWS_PER_USER = 20
RESAMPLES = 200
AT = np.array([-2.3, -1.6, -1.0, -0.5, 0.0, 0.5, 1.0, 1.6, 2.3])
"""Scores at which intervals are checked, of standard normal ones."""

FAMILIES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "straight": lambda s: -1 + s,
    "an S": lambda s: -1 + 1.5 * np.tanh(1.5 * s),
    "level at the top": lambda s: -1.5 + np.minimum(s, 0.5),
    "rising late": lambda s: -2 + 0.1 * s + 1.5 * np.maximum(s, 0),
}


def line(claim: str, measured: float, allowed: str = "") -> None:
    """Print a claim, what was measured, and what is allowed."""
    print(f"{claim} | {measured:.3f} | {allowed}", flush=True)


def holds(interval: tuple[np.ndarray, np.ndarray], truth: np.ndarray) -> np.ndarray:
    """Where an interval holds the truth."""
    low, high = interval
    return (low <= truth) & (truth <= high)


def draw_rows(
    rng: np.random.Generator, truth: Callable[[np.ndarray], np.ndarray], rows: int
) -> tuple[np.ndarray, np.ndarray]:
    """Scores and labels of log odds that are a function of the score."""
    scores = rng.normal(size=rows)
    return scores, (rng.random(rows) < expit(truth(scores))).astype(float)


def intervals() -> None:
    """Parametric curves where the truth is of their family, of another, or at a bound."""
    for name, truth in FAMILIES.items():
        for calibrator in (cr.Platt(), cr.Gaussian(), cr.Spline()):
            for rows in (300, 1_000, 10_000):
                rng = np.random.default_rng(1)
                held = []
                for _ in range(TABLES):
                    fitted = calibrator.fit(*draw_rows(rng, truth, rows))
                    held.append(holds(fitted.sampling_interval(AT), expit(truth(AT))))
                claim = f"{calibrator.name}, truth {name}, {rows:,} labels: in the 95% interval"
                line(claim, float(np.mean(held)), "0.88 to 0.995")


def segments() -> None:
    """Levels with slopes of their own, and small ones beside a giant."""
    known, unknown = [], []
    rng = np.random.default_rng(0)
    for _ in range(TABLES):
        shift = rng.normal(0, 0.5, 40)
        slope = np.maximum(rng.normal(1, 0.3, 40), 0.1)
        code = np.repeat(np.arange(30), 300)
        scores = rng.normal(size=len(code))
        chances = expit(-1 + shift[code] + 1.2 * slope[code] * scores)
        labels = (rng.random(len(code)) < chances).astype(float)
        fitted = (cr.Platt() + cr.Level("g")).fit(scores, labels, {"g": code.astype(str)})
        every = np.repeat(np.arange(40), len(AT))
        asked = np.tile(AT, 40)
        truth = expit(-1 + shift[every] + 1.2 * slope[every] * asked)
        held = holds(fitted.sampling_interval(asked, {"g": every.astype(str)}), truth).reshape(
            40, -1
        )
        known.append(held[:30].mean(axis=0))
        unknown.append(held[30:].mean(axis=0))
    for name, found in (("known", known), ("unknown", unknown)):
        for score, share in zip(AT, np.mean(found, axis=0), strict=True):
            claim = f"{name} level whose slope differs, score {score}: in the 95% interval"
            line(claim, float(share), "0.93 to 0.97")
    slopes()
    giants()


def slopes() -> None:
    """The slope of a curve within 100 levels of 200 rows, whose intercepts differ by 1.5."""
    rng = np.random.default_rng(0)
    found = []
    code = np.repeat(np.arange(100), 200)
    for _ in range(max(TABLES // 4, 2)):
        scores = rng.normal(size=len(code))
        chances = expit(-1 + 1.5 * rng.normal(size=100)[code] + 1.5 * scores)
        labels = (rng.random(len(code)) < chances).astype(float)
        fitted = (cr.Platt() + cr.Level("g", slopes=False)).fit(scores, labels, {"g": code})
        found.append(np.diff(fitted.without_terms().log_odds([0.0, 1.0]))[0])
    line("slope within levels that differ: over the true one", float(np.mean(found)) / 1.5, "1")


def giants() -> None:
    """200 segments of 100 rows that are all alike, beside one of 20,000 that is not."""
    rng = np.random.default_rng(0)
    errors = []
    for _ in range(max(TABLES // 4, 2)):
        code = np.concatenate([np.zeros(20_000, int), np.repeat(np.arange(1, 201), 100)])
        scores = rng.normal(size=len(code))
        level = np.where(code == 0, -2.5, -1.5)
        labels = (rng.random(len(code)) < expit(level + scores)).astype(float)
        fitted = (cr.Platt() + cr.Level("g")).fit(scores, labels, {"g": code.astype(str)})
        small = np.arange(1, 201).astype(str)
        found = fitted.log_odds(np.zeros(200), {"g": small})
        errors.append(np.mean((found + 1.5) ** 2))
    claim = "one giant and 200 small segments: squared error of the small ones, 1e-4"
    line(claim, 1e4 * float(np.mean(errors)), "at most 28")


def assumptions() -> None:
    """What breaks in silence: ranks of a personalised ranker, clips, estimated propensities."""
    personalised()
    propensities()
    rates_of_all_pairs()
    wrong_range()
    bands()
    plans()


def personalised() -> None:
    """Lists by a score that sees what the user likes: examination of items, or at their scores."""
    rng = np.random.default_rng(0)
    users, candidates, shown = 50_000, 20, 10
    items = rng.integers(0, 60, (users, candidates))
    log_odds = -1 + rng.normal(0, 0.7, 60)[items] + 1.2 * rng.normal(size=items.shape)
    scores = log_odds + 0.5 * rng.normal(size=items.shape)
    order = np.argsort(-scores - rng.normal(size=items.shape), axis=1)[:, :shown]
    items = np.take_along_axis(items, order, 1).ravel()
    chances = expit(np.take_along_axis(log_odds, order, 1).ravel())
    scores = np.take_along_axis(scores, order, 1).ravel()
    ranks = np.tile(np.arange(1, shown + 1), users)
    clicks = (rng.random(len(ranks)) < chances * ranks**-0.8).astype(float)
    for name, given, allowed in (("alone", None, "-"), ("at similar scores", scores, "0.01")):
        position = estimate_position(items, ranks, clicks, given)
        fitted = cr.Spline().fit(scores, cr.ips(clicks, position.predict(ranks)))
        truth = cr.Evidence(chances, np.ones_like(chances))
        error = cr.ECE()(fitted.predict(scores), truth)
        line(f"personalised ranker, ranks compared by item {name}: ECE", error, allowed)


def propensities() -> None:
    """Base rate and coverage where true propensities of 0.005 to 1 are clipped or estimated."""
    exposure = np.tile(np.maximum(1 / np.arange(1, 301), 0.005), 400)
    item = np.tile(np.arange(300), 400)
    kinds: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "true": lambda _: exposure,
        "true, clipped at 0.1": lambda _: np.maximum(exposure, 0.1),
        "counted on the same positives": lambda y: _counted(item, y),
    }
    for name, made in kinds.items():
        rng = np.random.default_rng(0)
        rates, held = [], []
        for _ in range(TABLES):
            scores, liked = draw_rows(rng, lambda s: -2 + s, len(exposure))
            labels = liked * (rng.random(len(exposure)) < exposure)
            fitted = cr.Platt().fit(scores, cr.ips(labels, made(labels)))
            rates.append(fitted.predict(scores).mean())
            held.append(holds(fitted.sampling_interval(AT), expit(AT - 2)))
        line(f"propensities {name}: base rate", float(np.mean(rates)), "truth 0.155")
        allowed = "0.9 to 0.995" if name == "true" else "none: the output says so"
        line(f"propensities {name}: in the 95% interval", float(np.mean(held)), allowed)


def _counted(item: np.ndarray, labels: np.ndarray) -> np.ndarray:
    counts = np.bincount(item, labels, 300)
    return np.maximum(counts / counts.max(), 0.005)[item]


def wrong_range() -> None:
    """A range of base rates given with random labels, which may be wrong."""
    rng = np.random.default_rng(0)
    population = rng.normal(size=10_000)
    truth = expit(-1.6 + 0.7 * population)
    start = cr.Platt().fit(*draw_rows(rng, lambda s: -0.3 + s, 5_000))
    ranges = {
        "no range": None,
        "a right range": (0.15, 0.25),
        "a wrong range": (0.05, 0.1),
        "a vacuous range": (0.01, 0.95),
    }
    least = cr.LogLoss()(truth, cr.Evidence(truth, np.ones_like(truth)))
    for name, ends in ranges.items():
        fitted = start
        if ends is not None:
            rate = float(expit(logit(np.array(ends)).mean()))
            fitted = cr.to_base_rate(start, rate, population, rate_range=ends)
        for labels in (30, 300):
            excess = []
            for _ in range(TABLES):
                rows = rng.integers(0, len(population), labels)
                drawn = (rng.random(labels) < truth[rows]).astype(float)
                anchored = cr.anchor(fitted, population[rows], drawn, population=population)
                given = cr.Evidence(truth, np.ones_like(truth))
                excess.append(cr.LogLoss()(anchored.predict(population), given) - least)
            claim = f"{name} of base rates, {labels} labels: excess log loss, 1e-4"
            is_same = labels == 300 or name == "a vacuous range"
            allowed = "that of no range" if is_same else "-"
            line(claim, 1e4 * float(np.mean(excess)), allowed)


def rates_of_all_pairs() -> None:
    """The base rate after anchoring a log of impressions that a ranker chose by their scores."""
    truth = FAMILIES["straight"]
    everyone = float(expit(truth(draw_rows(np.random.default_rng(0), truth, 1_000_000)[0])).mean())
    for strength in (0.0, 0.5, 2.0):
        for size in (30, 300, 1_000):
            rng = np.random.default_rng(4)
            held = []
            for _ in range(TABLES):
                scores, labels = draw_rows(rng, truth, 10_000)
                shown = rng.random(10_000) < expit(strength * scores)
                fitted = cr.Platt().fit(scores[shown], cr.impressions(labels[shown]))
                anchoring = cr.anchor(fitted, *draw_rows(rng, truth, size)).record.anchoring
                low, high = anchoring.rate_range
                held.append(low <= everyone <= high)
            claim = f"high scores shown more (strength {strength:g}), {size:,} random labels"
            line(f"{claim}: intervals that hold the base rate", float(np.mean(held)), "0.95")


def bands() -> None:
    """Sensitivity bands where exposure rises with the score, which the propensities do not see."""
    for known in (False, True):
        held = []
        rng = np.random.default_rng(0)
        for _ in range(max(TABLES // 2, 5)):
            scores, liked = draw_rows(rng, lambda s: -2 + 0.7 * s, 50_000)
            exposure = np.tile(np.maximum(np.arange(1, 501) ** -0.7, 0.02), 100)
            # By 0.3 of log odds per standard deviation of the score.
            shown = rng.random(len(scores)) < expit(logit(0.5 * exposure) + 0.3 * scores)
            given = (scores, liked * shown, exposure)
            fitted = fit_with_sensitivity(cr.Gaussian(), *given, PropensityModel(power=1, clip=0))
            if known:
                fitted = cr.to_base_rate(fitted, float(liked.mean()), scores)
            held.append(holds(fitted.band(AT), expit(0.7 * AT - 2)))
        rate = "a known" if known else "an assumed"
        claim = f"band of {rate} rate, exposure rises with the score: holds the truth"
        line(claim, float(np.mean(held)), "at least 0.95")


def plans() -> None:
    """Planned and found error after 30 labels, where the log has the right shape and where not."""
    for name, bend in (("right", 0.0), ("too steep", 0.3)):
        planned, found = [], []
        for seed in range(max(TABLES // 4, 2)):
            rng = np.random.default_rng(seed)
            scores, liked = draw_rows(rng, lambda s: -2 + 0.7 * s, 50_000)
            exposure = np.tile(np.maximum(np.arange(1, 501) ** -0.7, 0.02), 100)
            seen = rng.random(len(scores)) < expit(logit(0.5 * exposure) + bend * scores)
            given = (scores, liked * seen, exposure)
            fitted = fit_with_sensitivity(cr.Gaussian(), *given, PropensityModel(power=1, clip=0))
            planned.append(cr.plan_labels(fitted, scores, (30,), seed=seed)[0].error)
            drawn = rng.choice(len(scores), 30, replace=False)
            anchored = cr.anchor(fitted, scores[drawn], liked[drawn], population=scores)
            found.append(np.abs(anchored.predict(scores) - expit(0.7 * scores - 2)).mean())
        claim = f"plan of 30 labels, the log's shape is {name}: error found over planned"
        line(claim, float(np.mean(found) / np.mean(planned)), "at most 1.8")


Truth = Callable[[np.ndarray], np.ndarray]
WORLDS: dict[str, Truth] = {
    "calibrated": lambda p: p,
    "slightly off": lambda p: expit(0.8 * logit(p) - 0.1),
    "far off": lambda p: expit(0.6 * logit(p) + 0.4),
}
METRICS: tuple[Metric, ...] = (
    cr.LogLoss(),
    cr.ECE(),
    EqualMassECE(),
    cr.SmoothECE(),
    MCE(),
    Miscalibration(),
    DebiasedECE(),
)


def draw(
    rng: np.random.Generator, truth: Truth, users: int, rows: int = ROWS_PER_USER
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Predicted and true probabilities, whose level differs by user, and the users."""
    user = np.repeat(np.arange(users), rows)
    log_odds = -1 + 0.7 * rng.normal(size=users)[user] + 0.7 * rng.normal(size=len(user))
    p = expit(log_odds)
    return p, truth(p), user


def draw_labels(rng: np.random.Generator, chances: np.ndarray, user: np.ndarray) -> np.ndarray:
    """Labels with these chances, correlated within users by a Gaussian copula."""
    of_user = rng.normal(size=user.max() + 1)[user]
    latent = 0.4 * of_user + np.sqrt(1 - 0.4**2) * rng.normal(size=len(user))
    return (ndtr(latent) < chances).astype(float)


def coverage() -> None:
    """The share of 95% intervals that hold the value of a million rows."""
    for name, truth in WORLDS.items():
        p, chances, _ = draw(np.random.default_rng(1), truth, 50_000)
        expected = {metric: metric(p, cr.Evidence(chances, np.ones_like(p))) for metric in METRICS}
        for users in (30, 100, 300):
            rng = np.random.default_rng(5)
            held = dict.fromkeys(METRICS, 0)
            for _ in range(TABLES):
                p, chances, user = draw(rng, truth, users)
                labels = draw_labels(rng, chances, user)
                for metric in METRICS:
                    found = cr.bootstrap(metric, p, labels, user, resamples=RESAMPLES)
                    held[metric] += found.low <= expected[metric] <= found.high
            for metric in METRICS:
                claim = f"{name}, {users} users: {metric} in its 95% interval"
                line(claim, held[metric] / TABLES, "at least 0.85")


def debiased() -> None:
    """The mean of the debiased ECE of independent rows, against the ECE of a million rows."""
    for name, truth in WORLDS.items():
        p, chances, _ = draw(np.random.default_rng(1), truth, 50_000)
        expected = cr.ECE()(p, cr.Evidence(chances, np.ones_like(p)))
        for rows in (100, 300, 1_000, 10_000):
            rng = np.random.default_rng(5)
            found = []
            for _ in range(TABLES):
                p, chances, _ = draw(rng, truth, rows, 1)
                found.append(DebiasedECE()(p, (rng.random(rows) < chances).astype(float)))
            claim = f"{name}, {rows} rows: mean DebiasedECE"
            line(claim, float(np.mean(found)), f"truth {expected:.3f}")


def sizes() -> None:
    """How often the test rejects calibrated probabilities with few positives."""
    for positives, spread, rows in ((5, 0.5, 300), (5, 3.0, 300), (12, 2.0, 1_000)):
        rng = np.random.default_rng(3)
        found = []
        for _ in range(2 * TABLES):
            p = np.exp(spread * rng.normal(size=rows))
            p = np.minimum(positives * p / p.sum(), 0.95)
            found.append(cr.calibration_test(p, (rng.random(rows) < p).astype(float)).p_value)
        for level in (0.01, 0.05):
            share = float(np.mean(np.array(found) <= level))
            claim = f"{positives} expected positives, spread {spread}: rejected at {level}"
            line(claim, share, f"at most {level + 3 * np.sqrt(level / len(found)):.3f}")


def sizes_with_propensities() -> None:
    """The same where positives are seen with propensities of 0.05 to 1."""
    for positives, rows in ((3, 400), (60, 1_000), (500, 10_000)):
        rng = np.random.default_rng(3)
        whole, by_segment = [], []
        for _ in range(TABLES):
            p = np.exp(rng.normal(size=rows))
            p = np.minimum(positives * p / p.sum(), 0.9)
            propensity = np.clip(rng.beta(0.6, 1, rows), 0.05, 1)
            evidence = cr.ips((rng.random(rows) < p * propensity).astype(float), propensity)
            segments = {"a": rng.integers(0, 5, rows), "b": rng.integers(0, 20, rows)}
            whole.append(cr.calibration_test(p, evidence).p_value)
            by_segment.append(multicalibration_test(p, evidence, segments).p_value)
        for name, found in (("all pairs", whole), ("segments", by_segment)):
            claim = f"{positives} liked pairs seen with propensities, {name}: rejected at 0.05"
            line(claim, float(np.mean(np.array(found) <= 0.05)), "at most 0.05")


def heavy_activity() -> None:
    """Intervals where users have 2 to 150 rows, by a Pareto distribution of shape 1.1."""
    metrics = (cr.LogLoss(), CalibrationInTheLarge())
    for users in (15, 30):
        rng = np.random.default_rng(5)
        held = np.zeros(len(metrics))
        truth = draw(np.random.default_rng(1), lambda p: p, 50_000)[0]
        expected = (cr.LogLoss()(truth, cr.Evidence(truth, np.ones_like(truth))), 1.0)
        for _ in range(2 * TABLES):
            rows = np.minimum(2 + 3 * rng.pareto(1.1, users), 150).astype(int)
            user = np.repeat(np.arange(users), rows)
            p = expit(-1 + 0.7 * rng.normal(size=users)[user] + 0.7 * rng.normal(size=len(user)))
            labels = draw_labels(rng, p, user)
            for number, metric in enumerate(metrics):
                found = cr.bootstrap(metric, p, labels, user, resamples=RESAMPLES)
                held[number] += found.low <= expected[number] <= found.high
        for metric, share in zip(metrics, held / (2 * TABLES), strict=True):
            line(
                f"Pareto activity, {users} users: {metric} in its 95% interval",
                share,
                "at least 0.85",
            )


PARTS: dict[str, tuple[Callable[[], None], ...]] = {
    "intervals": (intervals,),
    "segments": (segments,),
    "assumptions": (assumptions,),
    "metrics": (sizes, sizes_with_propensities, heavy_activity, debiased, coverage),
    "promises": (lambda: promises.simulate(5 * TABLES),),
    "monitor": (lambda: monitor_claims.main(TABLES),),
}


if __name__ == "__main__":
    warnings.simplefilter("ignore", cr.CalibrankWarning)
    print("claim | measured | allowed")
    for part in sys.argv[2:] or PARTS:
        for run in PARTS[part]:
            run()
