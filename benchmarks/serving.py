"""Time to serve a map on one thread: one score by `scalar`, and batches by `predict`.

Every kind of map that a fit returns, those that are made of others, and maps that read a further
column. Batches are compared with `np.exp` of the same scores in the same run: the least that a
probability costs.

python -m benchmarks.serving            # float64 scores
python -m benchmarks.serving float32
"""

import sys
import timeit
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

import calibrank as cr
from calibrank.registry import CALIBRATORS

SIZES = (1_000, 10_000, 100_000, 1_000_000)
LIMIT = 3.0
"""Nanoseconds per score, of maps of scores alone."""
# Many short repetitions, of which the fastest counts: other work on the machine interrupts most.
REPETITIONS = 40
# A virtual machine is slow for longer than one batch takes: batches take turns.
ROUNDS = 5
ROWS = 5_000


def seconds(function: Callable[[Any], Any], argument: Any, number: int) -> float:
    """The fastest call of a function."""
    taken = timeit.repeat(lambda: function(argument), number=number, repeat=REPETITIONS)
    return min(taken) / number


def nanoseconds(function: Callable[[Any], Any], batches: list[np.ndarray]) -> np.ndarray:
    """The time per score of each batch."""
    rounds = []
    for _ in range(ROUNDS):
        taken = [seconds(function, batch, max(1, 50_000 // len(batch))) for batch in batches]
        rounds.append(taken)
    return np.min(rounds, axis=0) / SIZES * 1e9


def maps(rng: np.random.Generator) -> Iterator[tuple[str, cr.CalibrationMap]]:
    """Maps of scores alone, by name."""
    scores = rng.normal(size=ROWS)
    labels = rng.random(ROWS) < 1 / (1 + np.exp(-scores))
    for name, calibrator in CALIBRATORS.items():
        yield name, calibrator.fit(scores, labels)
    gaussian = cr.Gaussian().fit(scores, labels)
    yield "anchored, 300 labels", cr.anchor(gaussian, scores[:300], labels[:300])
    yield "anchored, 5,000 labels", cr.anchor(gaussian, scores, labels)
    yield "known rate", cr.to_base_rate(gaussian, 0.1, scores)
    groups = np.arange(ROWS) // 25
    by_group = cr.Auto() + cr.Group("query")
    yield "level per group", by_group.fit(scores, labels, {"query": groups})
    many = rng.normal(size=400_000)
    outcomes = rng.random(len(many)) < 1 / (1 + np.exp(-many))
    yield "Isotonic, 400,000 rows", cr.Isotonic().fit(many, outcomes)


def maps_with_a_column(
    rng: np.random.Generator,
) -> Iterator[tuple[str, Callable[[int], Callable[[Any], Any]]]]:
    """Functions of the size of a batch that return `predict` with a column of that size."""
    scores = rng.normal(size=ROWS)
    labels = rng.random(ROWS) < 1 / (1 + np.exp(-scores))
    country = np.arange(ROWS) % 50
    age = rng.normal(size=ROWS)
    ranks = np.arange(ROWS) % 20 + 1
    columns = {"country": country, "age": age, "rank": ranks}
    curve = cr.Gaussian().fit(scores, labels)
    fitted = {
        "a level": (cr.Gaussian() + cr.Level("country")).fit(scores, labels, columns),
        "a smooth term": (cr.Gaussian() + cr.Smooth("age")).fit(scores, labels, columns),
        "positions": cr.anchor(curve, scores, labels, columns, terms=[cr.Position("rank")]),
    }
    for name, each in fitted.items():
        yield name, partial(_with_columns, each, columns)


def _with_columns(
    fitted: cr.CalibrationMap, columns: dict[str, np.ndarray], size: int
) -> Callable[[Any], Any]:
    """`predict` with columns of a size."""
    resized = {name: _of(columns[name], size) for name in fitted.columns}
    return partial(fitted.predict, columns=resized)


def _of(column: np.ndarray, size: int) -> np.ndarray:
    return np.resize(column, size)


def main(dtype: str = "float64") -> int:
    rng = np.random.default_rng(0)
    batches = [rng.normal(size=size).astype(dtype) for size in SIZES]
    exponential = nanoseconds(np.exp, batches)
    print(f"ns per {dtype} score, times np.exp | sizes", *SIZES, "| scalar, us | predict of 1, us")
    print("np.exp |", " | ".join(f"{time:.1f}" for time in exponential), "|")
    slowest = 0.0
    for name, fitted in maps(rng):
        times = nanoseconds(fitted.predict, batches)
        cells = [
            f"{time:.1f}, {time / least:.1f}x"
            for time, least in zip(times, exponential, strict=True)
        ]
        one = seconds(fitted.scalar(), 0.3, 500) * 1e6
        array_of_one = seconds(fitted.predict, batches[0][:1], 500) * 1e6
        print(f"{name} |", " | ".join(cells), f"| {one:.2f} | {array_of_one:.2f}", flush=True)
        slowest = max(slowest, *times)
    for name, predict_of in maps_with_a_column(rng):
        times = np.array([nanoseconds_of_one(predict_of, batch) for batch in batches])
        print(f"{name} |", " | ".join(f"{time:.0f}" for time in times), "|", flush=True)
    verdict = "ok  " if slowest <= LIMIT else "MISS"
    print(f"{verdict} slowest map of scores alone: {slowest:.1f} ns (at most {LIMIT:g})")
    return int(slowest > LIMIT)


def nanoseconds_of_one(
    predict_of: Callable[[int], Callable[[Any], Any]], batch: np.ndarray
) -> float:
    """The time per score of one batch with a column; fewer calls, as these take longer."""
    predict = predict_of(len(batch))
    taken = timeit.repeat(lambda: predict(batch), number=1, repeat=max(5, 10**6 // len(batch)))
    return min(taken[:100]) / len(batch) * 1e9


if __name__ == "__main__":
    with warnings.catch_warnings(action="ignore"):
        sys.exit(main(*sys.argv[1:]))
