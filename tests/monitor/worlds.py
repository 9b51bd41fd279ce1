"""Days of simulated worlds, as sums only (for many years at once) and as `Day`s."""

import datetime as dt
from collections.abc import Callable

import numpy as np
from scipy.special import ndtr

import calibrank as cr
from calibrank.monitor import Day
from calibrank.monitor.day import CLUSTERS, SHIFTS
from calibrank.monitor.e_process import YearSums

Change = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""From log odds and days to the true log odds."""


def date_of(day: int) -> str:
    return (dt.date(2026, 1, 1) + dt.timedelta(days=day)).isoformat()


def labels_of(
    rng: np.random.Generator, truth: np.ndarray, users: np.ndarray, within: float
) -> np.ndarray:
    """Labels with the given probabilities; `within` is the correlation of a user's rows."""
    noise = rng.normal(size=len(truth))
    if within:
        shared = rng.normal(size=users.max() + 1)[users]
        noise = np.sqrt(within) * shared + np.sqrt(1 - within) * noise
    return (ndtr(noise) < truth).astype(float)


def year_of_sums(
    rng: np.random.Generator,
    days: int = 364,
    labels: int = 50,
    shift: float = -1.0,
    n_users: int = 0,
    within: float = 0.0,
    change: Change | None = None,
) -> YearSums:
    """What `log_evidence` needs; users come back on all days."""
    rows = days * labels
    log_odds = rng.normal(shift, 1.2, rows)
    p = 1 / (1 + np.exp(-log_odds))
    day = np.repeat(np.arange(days), labels)
    users = rng.integers(n_users, size=rows) if n_users else np.arange(rows)
    truth = p if change is None else 1 / (1 + np.exp(-change(log_odds, day)))
    residuals = labels_of(rng, truth, users, within) - p
    places = day * CLUSTERS + users % CLUSTERS
    terms = (residuals, residuals * log_odds)
    sums = [np.bincount(places, term, days * CLUSTERS).reshape(days, -1) for term in terms]
    variances = [np.bincount(day, p * (1 - p) * log_odds**power, days) for power in range(3)]
    cumulants = [
        np.bincount(day, np.log(1 - p + p * np.exp(shift)) - shift * p, days) for shift in SHIFTS
    ]
    return YearSums(
        np.stack(sums, axis=2),
        np.column_stack(variances),
        np.column_stack(cumulants),
        np.arange(days),
    )


def halved(log_odds: np.ndarray) -> np.ndarray:
    """Log odds of half the probability."""
    p = 1 / (1 + np.exp(-log_odds)) / 2
    return np.log(p / (1 - p))


def make_map(seed: int = 0) -> cr.CalibrationMap:
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=20_000)
    labels = (rng.random(20_000) < 1 / (1 + np.exp(1 - 1.2 * scores))).astype(int)
    return cr.Platt().fit(scores, labels)


def make_day(
    fitted: cr.CalibrationMap,
    day: int,
    rng: np.random.Generator,
    rows: int = 300,
    *,
    move: float = 0.0,
    level: float = 0.0,
    slope: float = 1.0,
) -> Day:
    """A day whose scores moved, or whose labels have another level or slope than the map."""
    scores = rng.normal(move, 1, rows)
    users = rng.integers(200, size=rows)
    truth = 1 / (1 + np.exp(-(level + slope * fitted.log_odds(scores))))
    labels = (rng.random(rows) < truth).astype(int)
    return Day.of(fitted, scores, labels, users=users, date=date_of(day))
