"""What the page about monitoring promises, by simulation: claim, measured, allowed.

Labels have log odds with a standard deviation of 1.2. CUSUM knows the size of the change and that
the map is exactly right. It has as many false alarms as the check, in years with or without effects
of days.

python -m benchmarks.monitor_claims [years per row]; each row has random numbers of its own, and all
cores are used.
"""

import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import NamedTuple

import numpy as np
from tests.monitor.worlds import Years, halved, information_of, simulate

from calibrank._internal.blas import one_blas_thread
from calibrank.monitor.changes import LATER_SHARE, LEAST_ERROR, LOG_THRESHOLD
from calibrank.monitor.e_process import YEAR, Unchanged

UNCHANGED_YEARS = 500
"""From which the threshold of CUSUM is found."""

MOST_DAYS_OF_CUSUM = 1.75
"""Allowed. An alarm that took the map to be exact needed up to 2.5 times as many days as CUSUM."""

Rng = np.random.Generator
Row = Callable[[Rng, int], str]
MAPS = (300, 1_000, 3_000, 10_000)
RARE = -3.6
"""Mean of the log odds for a rate of 5%; -1 is one of 31%."""


def day_effects(rng: Rng, years: int, days: int = YEAR, correlation: float = 0.7) -> np.ndarray:
    """Standard deviation 0.1, correlation 0.7 between days."""
    effects = 0.1 * rng.normal(size=(years, days))
    new = np.sqrt(1 - correlation**2)
    for day in range(1, days):
        effects[:, day] = correlation * effects[:, day - 1] + new * effects[:, day]
    return effects


def slow_effects(rng: Rng, years: int, days: int = YEAR) -> np.ndarray:
    """The same with a correlation of 0.9."""
    return day_effects(rng, years, days, 0.9)


def weekday_pattern(rng: Rng, years: int, days: int = YEAR) -> np.ndarray:
    """Standard deviation 0.2 between weekdays."""
    return 0.2 * rng.normal(size=(years, 7))[:, np.arange(days) % 7]


def weekly_items(rng: Rng, years: int, days: int = YEAR, length: int = 7) -> np.ndarray:
    """Every week 50 new items with a standard deviation of 0.5: 0.07 between weeks."""
    return 0.07 * rng.normal(size=(years, days // length))[:, np.arange(days) // length]


def fortnightly_items(rng: Rng, years: int, days: int = YEAR) -> np.ndarray:
    """The same every two weeks."""
    return weekly_items(rng, years, days, 14)


def no_change(_rng: Rng, years: int, days: int = YEAR) -> np.ndarray:
    """Days are alike."""
    return np.zeros((years, days))


def errors_of(fitted_on: int, mean: float = -1.0) -> list[float]:
    """Standard errors of level and slope of a map."""
    return [float(1 / np.sqrt(fitted_on * each)) for each in information_of(mean)]


@one_blas_thread()
def alarms(years: Years, fitted_on: int, mean: float = -1.0) -> np.ndarray:
    """Whether there is an alarm of level, slope, or either from the start: years x days x 4."""
    found = []
    for sums, series, error in zip(
        (years.level, years.slope), years.series, errors_of(fitted_on, mean), strict=True
    ):
        model = Unchanged(series, max(error, LEAST_ERROR))
        found.append([model.log_evidence(each) for each in sums])
        found.append([model.log_start(each) for each in sums])
    return np.moveaxis(found, 0, 2) >= LOG_THRESHOLD


@one_blas_thread()
def later_alarms(years: Years) -> np.ndarray:
    """Whether there is an alarm of level or slope in the second year: years x 2."""
    found = []
    for sums, series in zip((years.level, years.slope), years.series, strict=True):
        highest = np.full(len(sums), -np.inf)
        for first in (YEAR // 2, YEAR):
            days = slice(first, first + YEAR)
            model = Unchanged(series.part(days.start, days.stop), None)
            logs = [model.log_evidence(each)[YEAR // 2 :].max() for each in sums[:, days]]
            highest = np.maximum(highest, logs)
        found.append(highest + np.log(LATER_SHARE) >= LOG_THRESHOLD)
    return np.transpose(found)


def false_alarms(
    effects: Callable[[Rng, int, int], np.ndarray],
    labels: int,
    fitted_on: int,
    rng: Rng,
    years: int,
    *,
    later: bool = False,
) -> str:
    """The share of years without a change that have an alarm, with its standard error."""
    level_error, slope_error = errors_of(fitted_on)
    days = 2 * YEAR if later else YEAR
    simulated = simulate(
        rng,
        years,
        days,
        labels,
        level_error=level_error,
        slope_error=slope_error,
        effects=effects(rng, years, days),
    )
    found = later_alarms(simulated) if later else alarms(simulated, fitted_on).any(axis=1)
    rate = found.any(axis=1).mean()
    by_kind = ", ".join(f"{share:.1%}" for share in found.mean(axis=0))
    name = f"{effects.__name__}, map of {fitted_on}, {labels} a day"
    name += ", second year" if later else ""
    allowed = "-" if effects in (fortnightly_items, slow_effects) else "5%"
    error = np.sqrt(rate * (1 - rate) / years)
    return f"{name} | {rate:.1%} +- {error:.1%} ({by_kind}) | {allowed}"


class Late(NamedTuple):
    """A change of the level, and how long the alarm before this one took."""

    name: str
    change: Callable[[np.ndarray], np.ndarray]
    size: float
    """That CUSUM looks for; 0 where it is not compared."""
    labels: int
    mean: float
    begins: int
    before: float
    """Days of the alarm before this one, which took the map to be exact: the mean, of slopes the
    median."""


def steeper(slope: float) -> Callable[[np.ndarray], np.ndarray]:
    return partial(np.multiply, slope)


def lowered(size: float) -> Callable[[np.ndarray], np.ndarray]:
    return partial(np.add, -size)


CHANGES = (
    Late("halved rate of 31%", halved, 0.0, 50, -1.0, 30, 3.6),
    Late("halved rate of 31%", halved, 0.75, 50, -1.0, 180, 3.6),
    Late("halved rate of 5%", halved, 0.0, 50, RARE, 30, 22.8),
    Late("halved rate of 5%", halved, 0.75, 50, RARE, 180, 22.2),
    Late("halved rate of 5%", halved, 0.75, 400, RARE, 180, 3.6),
    Late("level -0.5", lowered(0.5), 0.0, 50, -1.0, 30, 12.6),
    Late("level -0.5", lowered(0.5), 0.5, 50, -1.0, 180, 11.1),
    Late("level -0.5", lowered(0.5), 0.5, 400, -1.0, 180, 2.2),
    Late("level -0.25", lowered(0.25), 0.25, 50, -1.0, 180, 39.9),
    Late("level -0.25", lowered(0.25), 0.25, 400, -1.0, 180, 6.7),
    Late("slope 0.75", steeper(0.75), 0.0, 50, -1.0, 30, 28.0),
    Late("slope 0.75", steeper(0.75), 0.0, 50, -1.0, 180, 28.0),
    Late("slope 1.25", steeper(1.25), 0.0, 50, -1.0, 30, 41.0),
    Late("slope 1.25", steeper(1.25), 0.0, 50, -1.0, 180, 42.0),
)


def cusum(years: Years, size: float) -> np.ndarray:
    """The larger of two CUSUM statistics, for a change down and one up: years x days."""
    information = years.series[0].information[0]
    both = []
    for change, skewness in zip((-size, size), years.series[0].skewness[:, 0], strict=True):
        # The exact cumulant of 0.75, interpolated: its third power is what skewness adds.
        factor = 1 + (skewness - 1) * size / 0.75
        ratios = change * years.level - factor * change**2 * information / 2
        total = np.zeros(len(ratios))
        statistics = []
        for ratio in ratios.T:
            total = np.maximum(total, 0) + ratio
            statistics.append(total)
        both.append(np.array(statistics).T)
    return np.maximum(*both)


def delay(found: np.ndarray, begins: int) -> np.ndarray:
    """Days until the first alarm since the change; the last day counts where there is none."""
    found = found[:, begins:].copy()
    found[:, -1] = True
    return np.argmax(found, axis=1) + 1


def late_change(late: Late, rng: Rng, years: int) -> str:
    """How soon a change is found, and how much later than by CUSUM."""
    options = {"labels": late.labels, "mean": late.mean}
    changed = {"change": late.change, "begins": late.begins, "days": late.begins + 120}
    simulated = simulate(rng, years, **options, **changed)
    found = alarms(simulated, 10_000, late.mean).any(axis=2)
    days = delay(found, late.begins).mean()
    name = f"{late.name} on day {late.begins + 1}, {late.labels} a day: days"
    lines = [f"{name} | {days:.1f} | {2 * late.before:.1f}"]
    for effects in (no_change, day_effects) if late.size else ():
        given = effects(rng, UNCHANGED_YEARS)
        unchanged = simulate(rng, UNCHANGED_YEARS, **options, effects=given)
        false = alarms(unchanged, 10_000, late.mean).any(axis=(1, 2)).mean()
        likely = 1 - max(false, 1 / UNCHANGED_YEARS)
        threshold = np.quantile(cusum(unchanged, late.size).max(axis=1), likely)
        best = delay(cusum(simulated, late.size) >= threshold, late.begins).mean()
        lines.append(f"  CUSUM, {effects.__name__}: days | {best:.1f} | -")
        lines.append(f"  against it | {days / best:.2f} | {MOST_DAYS_OF_CUSUM}")
    return "\n".join(lines)


def rows() -> Iterator[Row]:
    """The longest first."""
    for late in CHANGES:
        yield partial(late_change, late)
    for labels in (50, 400, 5_000):
        for fitted_on in MAPS:
            yield partial(false_alarms, no_change, labels, fitted_on)
    for labels in (10, 50, 400, 2_000, 5_000, 50_000):
        for effects in (
            day_effects,
            slow_effects,
            weekday_pattern,
            weekly_items,
            fortnightly_items,
        ):
            yield partial(false_alarms, effects, labels, 3_000)
    for labels in (10, 50, 400, 5_000):
        for effects in (no_change, day_effects, weekday_pattern, weekly_items):
            yield partial(false_alarms, effects, labels, 3_000, later=True)


def measured(number: int, row: Row, years: int) -> str:
    return row(np.random.default_rng([0, number]), years)


def main(years: int) -> None:
    print("claim | measured | allowed")
    all_rows = list(rows())
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        counts = [years] * len(all_rows)
        for text in pool.map(measured, range(len(all_rows)), all_rows, counts):
            print(text, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
