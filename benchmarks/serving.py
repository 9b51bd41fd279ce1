"""Time to serve a map: one score by `scalar` and by `predict`, and batches by `predict`.

python benchmarks/serving.py
"""

import timeit
from collections.abc import Callable
from typing import Any

import numpy as np

import calibrank as cr

METHODS = (
    cr.Platt(),
    cr.Gaussian(),
    cr.Beta(),
    cr.Gamma(),
    cr.Spline(),
    cr.Isotonic(),
    cr.MinMax(),
)
SIZES = (1_000, 100_000, 1_000_000)
# Many short repetitions, of which the fastest counts: other work on the machine interrupts most.
REPETITIONS = 30


def seconds(function: Callable[[Any], Any], argument: Any, number: int) -> float:
    """The fastest call of a function."""
    taken = timeit.repeat(lambda: function(argument), number=number, repeat=REPETITIONS)
    return min(taken) / number


def main() -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=5_000)
    labels = rng.random(5_000) < 1 / (1 + np.exp(-scores))
    print("method | scalar us | predict(float) / scalar | ns per score at", *SIZES)
    for calibrator in METHODS:
        fitted = calibrator.fit(scores, labels)
        one = seconds(fitted.scalar(), 0.3, 100)
        array = seconds(fitted.predict, 0.3, 10)
        batches = []
        for size in SIZES:
            taken = seconds(fitted.predict, rng.normal(size=size), max(1, 10_000 // size))
            batches.append(f"{taken / size * 1e9:.1f}")
        print(f"{calibrator.name} | {one * 1e6:.2f} | {array / one:.0f} |", " | ".join(batches))


if __name__ == "__main__":
    main()
