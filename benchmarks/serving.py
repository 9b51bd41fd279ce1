"""Time to serve a map on one thread: one score by `scalar`, and batches by `predict`.

Batches are compared with `np.exp` of the same scores in the same run: the least that a probability
costs.

python benchmarks/serving.py            # float64 scores
python benchmarks/serving.py float32
"""

import sys
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
    cr.GammaGaussian(),
    cr.Spline(),
    cr.CenteredIsotonic(),
    cr.Isotonic(),
    cr.Histogram(),
    cr.MinMax(),
)
SIZES = (1_000, 10_000, 100_000, 1_000_000)
# Many short repetitions, of which the fastest counts: other work on the machine interrupts most.
REPETITIONS = 100


def seconds(function: Callable[[Any], Any], argument: Any, number: int) -> float:
    """The fastest call of a function."""
    taken = timeit.repeat(lambda: function(argument), number=number, repeat=REPETITIONS)
    return min(taken) / number


def nanoseconds(function: Callable[[Any], Any], batches: list[np.ndarray]) -> np.ndarray:
    """The time per score of each batch."""
    taken = [seconds(function, batch, max(1, 50_000 // len(batch))) for batch in batches]
    return np.array(taken) / SIZES * 1e9


def main(dtype: str = "float64") -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=5_000)
    labels = rng.random(5_000) < 1 / (1 + np.exp(-scores))
    batches = [rng.normal(size=size).astype(dtype) for size in SIZES]
    exponential = nanoseconds(np.exp, batches)
    print(f"ns per {dtype} score, times np.exp | sizes", *SIZES, "| scalar, us")
    print("np.exp |", " | ".join(f"{time:.1f}" for time in exponential), "|")
    for calibrator in METHODS:
        fitted = calibrator.fit(scores, labels)
        times = nanoseconds(fitted.predict, batches)
        cells = [
            f"{time:.1f}, {time / least:.1f}x"
            for time, least in zip(times, exponential, strict=True)
        ]
        one = seconds(fitted.scalar(), 0.3, 500)
        print(f"{calibrator.name} |", " | ".join(cells), f"| {one * 1e6:.2f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
