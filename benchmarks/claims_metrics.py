"""Coverage of metric intervals with few users, the debiased ECE, and the size of the test.

Labels are drawn from known probabilities, dependent within users, so that every truth is known.

    python benchmarks/claims_metrics.py [tables per line]
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
from scipy.special import expit, logit, ndtr

import calibrank as cr
from calibrank.metrics import MCE, DebiasedECE, EqualMassECE, Metric, Miscalibration

TABLES = int(sys.argv[1]) if len(sys.argv) > 1 else 200
ROWS_PER_USER = 20
RESAMPLES = 200

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


def line(claim: str, measured: float, allowed: str = "") -> None:
    """Print a claim, what was measured, and what is allowed."""
    print(f"{claim:70} {measured:8.3f}  {allowed}", flush=True)


if __name__ == "__main__":
    sizes()
    debiased()
    coverage()
