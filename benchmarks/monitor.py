"""How soon the monitor raises an alarm after a change, and how often without one, by simulation.

Years of 50 labels per day; the log odds of the map have a standard deviation of 1.2. The bound is
that of any test with a probability of a false alarm of at most 5% in a year: after a change it
needs log(1 / 0.05) / KL labels on average, where KL is the divergence of a label's distribution
after the change from that before it (Wald, 1945).

python -m benchmarks.monitor [worlds per row]
"""

import sys
from collections.abc import Callable

import numpy as np
from tests.monitor.worlds import halved, year_of_sums

from calibrank.monitor.e_process import ALPHA, LOG_THRESHOLD, log_evidence

LABELS = 50
# Means of the log odds, by base rate.
RATES = {"5%": -3.6, "17%": -2.0, "31%": -1.0, "50%": 0.0}
BEGINS = (0, 30, 180)
CHANGES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "halved base rate": halved,
    "slope 0.75": lambda log_odds: 0.75 * log_odds,
    "slope 1.25": lambda log_odds: 1.25 * log_odds,
}
UNCHANGED: dict[str, dict[str, float]] = {
    "50 labels per day, base rate 31%": {"labels": 50, "shift": -1.0},
    "50 labels per day, base rate 5%": {"labels": 50, "shift": -3.6},
    "5 labels per day, base rate 31%": {"labels": 5, "shift": -1.0},
    "400 labels per day, base rate 31%": {"labels": 400, "shift": -1.0},
    "50 labels per day of 300 users, correlation 0.3": {"n_users": 300, "within": 0.3},
    "100 labels per day of 60 users, correlation 0.2": {
        "labels": 100,
        "n_users": 60,
        "within": 0.2,
    },
}


def labels_needed(change: Callable[[np.ndarray], np.ndarray], shift: float, begins: int) -> float:
    """Labels after the change until the first alarm of level or slope; infinite within 150 days."""

    def changed(log_odds: np.ndarray, day: np.ndarray) -> np.ndarray:
        return np.where(day >= begins, change(log_odds), log_odds)

    year = year_of_sums(RNG, begins + 150, LABELS, shift=shift, change=changed)
    alarms = np.flatnonzero(log_evidence(year)[begins:].max(axis=1) >= LOG_THRESHOLD)
    return float(LABELS * (alarms[0] + 1)) if len(alarms) else np.inf


def least_labels(change: Callable[[np.ndarray], np.ndarray], shift: float) -> float:
    """The bound of the mean number of labels."""
    log_odds = RNG.normal(shift, 1.2, 100_000)
    before = 1 / (1 + np.exp(-log_odds))
    after = 1 / (1 + np.exp(-change(log_odds)))
    positive = after * np.log(after / before)
    negative = (1 - after) * np.log((1 - after) / (1 - before))
    return float(np.log(1 / ALPHA) / np.mean(positive + negative))


RNG = np.random.default_rng(0)


def main(worlds: int) -> None:
    print("change | base rate | bound |", " | ".join(f"day {begins + 1}" for begins in BEGINS))
    for name, change in CHANGES.items():
        for rate, shift in RATES.items():
            cells = []
            for begins in BEGINS:
                needed = [labels_needed(change, shift, begins) for _ in range(worlds)]
                middle, most = np.quantile(needed, [0.5, 0.9], method="higher")
                cells.append(f"{middle:,.0f}, {most:,.0f}")
            print(name, rate, f"{least_labels(change, shift):,.0f}", *cells, sep=" | ", flush=True)
    print(f"\nyears without change | with an alarm, of {2 * worlds}")
    for name, options in UNCHANGED.items():
        alarms = 0
        for _ in range(2 * worlds):
            year = year_of_sums(RNG, **options)
            alarms += log_evidence(year).max() >= LOG_THRESHOLD
        print(f"{name} | {50 * alarms / worlds:.1f}%", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
