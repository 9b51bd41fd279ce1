"""Simulated worlds: sums of many years at once, and `Day`s."""

import datetime as dt
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import expit, ndtr, ndtri

import calibrank as cr
from calibrank.monitor import Day
from calibrank.monitor.series import LEVEL_SIZES, SHIFTS, SLOPE_SIZES, Series, Sizes


def date_of(day: int) -> str:
    return (dt.date(2026, 1, 1) + dt.timedelta(days=day)).isoformat()


class Years(NamedTuple):
    """Sums of many years with labels that are independent given the day."""

    level: np.ndarray
    """Residuals: years x days."""
    slope: np.ndarray
    """These times log odds, less the level."""
    series: tuple[Series, Series]
    """Of level and slope, with the sums of no year."""


def simulate(
    rng: np.random.Generator,
    years: int,
    days: int = 364,
    labels: int = 50,
    *,
    mean: float = -1.0,
    level_error: float = 0.0,
    slope_error: float = 0.0,
    effects: np.ndarray | float = 0.0,
    change: Callable[[np.ndarray], np.ndarray] = lambda log_odds: log_odds,
    begins: int = 0,
) -> Years:
    """Years of a map with normal errors of level and slope, and effects by year and day.

    Labels have 25 log odds, the quantiles of a normal distribution with deviation 1.2.
    """
    log_odds = mean + 1.2 * ndtri((np.arange(25) + 0.5) / 25)
    p = expit(log_odds)
    count = np.full(25, labels // 25) if labels >= 25 else np.zeros(25, dtype=int)
    share = labels / 25
    v0, v1, v2 = [share * p * (1 - p) @ log_odds**power for power in range(3)]
    centre = v1 / v0
    offsets = level_error * rng.normal(size=(years, 1))
    offsets = offsets + slope_error * rng.normal(size=(years, 1)) * (log_odds - centre)
    effects = np.broadcast_to(effects, (years, days))
    level = np.empty((years, days))
    slope = np.empty((years, days))
    for day in range(days):
        truth = log_odds + offsets + effects[:, [day]]
        truth = change(truth) if day >= begins else truth
        shown = rng.multinomial(labels, np.full(25, 1 / 25)) if not count.any() else count
        residuals = rng.binomial(shown, expit(truth)) - shown * p
        level[:, day] = residuals.sum(axis=1)
        slope[:, day] = residuals @ (log_odds - centre)
    cumulants = [share * np.sum(np.log(1 - p + p * np.exp(d)) - d * p) for d in SHIFTS]
    skewness = np.array(cumulants) / (np.square(SHIFTS) / 2 * v0)
    empty = _empty_series(days, v0, skewness, LEVEL_SIZES)
    other = _empty_series(days, v2 - v1 * centre, np.ones(2), SLOPE_SIZES)
    return Years(level, slope, (empty, other))


def _empty_series(days: int, information: float, skewness: np.ndarray, sizes: Sizes) -> Series:
    constant = np.full(days, information)
    by_day = np.tile(skewness[:, None], days)
    ones = np.ones(days)
    return Series(0 * ones, constant, constant, ones, 0 * ones, np.arange(days), by_day, 0.0, sizes)


def information_of(mean: float = -1.0) -> tuple[float, float]:
    """Information of a label of `simulate` about level and slope."""
    series = simulate(np.random.default_rng(0), 1, 1, 25, mean=mean).series
    return series[0].information[0] / 25, series[1].information[0] / 25


def days_of_users(
    rng: np.random.Generator, days: int, labels: int, n_users: int, within: float
) -> list[Day]:
    """Days of users who come back, whose labels have the correlation `within`."""
    fitted = make_map()
    shared = rng.normal(size=n_users)
    found = []
    for day in range(days):
        scores = rng.normal(size=labels)
        users = rng.integers(n_users, size=labels)
        noise = np.sqrt(within) * shared[users] + np.sqrt(1 - within) * rng.normal(size=labels)
        outcomes = (ndtr(noise) < fitted.predict(scores)).astype(float)
        found.append(Day.of(fitted, scores, outcomes, users=users, date=date_of(day)))
    return found


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
