"""A level per query on synthetic judged pools whose truth is known: its bias and its loss.

    python benchmarks/judged_pools.py --worlds 160

Level, slope, number of judged documents and share of relevant ones vary by query, and depend on
each other. Every second world has scores that tell little and sizes that vary much. A map is fitted
to 20 to 50 queries and evaluated on a thousand new ones, by their true probabilities: the mean
difference of truth and prediction above 0.5 and from 0.45 to 0.55, with its standard error over
worlds and its root mean square, and the log loss minus that of the constant of the same queries.
"""

import argparse
import warnings
from typing import NamedTuple

import numpy as np

import calibrank as cr
from calibrank._internal.logit import expit
from calibrank.errors import FlatMapWarning

SHAPES = ("bm25", "logit", "saturated", "cosine")
QUERIES = (20, 30, 42, 50)
NEW_QUERIES = 1000
NEW_ROWS = 15_000
FIRST_SEED = 20_000


class World(NamedTuple):
    """Settings of a world, from which queries are drawn."""

    shape: str
    queries: int
    size: float
    size_spread: float
    level: float
    level_spread: float
    slope: float
    slope_spread: float
    correlation: float
    top_only: bool
    score_level: float
    skewed: bool


class Pool(NamedTuple):
    """Judged documents of some queries, and their true probabilities."""

    scores: np.ndarray
    truth: np.ndarray
    labels: np.ndarray
    query: np.ndarray


def draw_world(shape: str, rng: np.random.Generator, *, weak: bool) -> World:
    queries = int(rng.choice(QUERIES))
    size = rng.uniform(30, 100) if weak else rng.uniform(20, 100)
    size_spread = rng.uniform(0.6, 1.5) if weak else rng.uniform(0.1, 0.9)
    level = rng.uniform(-1.2, 0.3) if weak else rng.uniform(-1.5, 0.3)
    level_spread = rng.uniform(0.5, 1.8) if weak else rng.uniform(0.3, 1.6)
    slope = np.exp(rng.normal(-1.0 if weak else 0.0, 0.6))
    slope_spread = rng.uniform(0, 0.8) if weak else rng.uniform(0, 0.6)
    correlation = rng.uniform(-0.6, 0.6)
    top_only = rng.random() < 0.5
    score_level = rng.uniform(0.3, 1.5)
    skewed = rng.random() < 0.3
    numbers = (size, size_spread, level, level_spread, slope, slope_spread, correlation)
    return World(shape, queries, *numbers, top_only, score_level, skewed)


def draw_pool(world: World, n: int, rng: np.random.Generator) -> Pool:
    ease = rng.normal(size=n)
    root = np.sqrt(1 - world.correlation**2)
    large = world.correlation * ease + root * rng.normal(size=n)
    sizes = world.size * np.exp(world.size_spread * large - world.size_spread**2 / 2)
    sizes = np.minimum(np.maximum(5, np.round(sizes)).astype(int), 600)
    if world.skewed:
        # A long tail of hard queries: the logarithm of a gamma variable, standardized.
        ease = (np.log(rng.gamma(1.5, size=n) + 1e-6) - 0.03649) / 0.9669
    level = world.level + world.level_spread * ease
    spread = world.slope_spread
    slope = world.slope * np.exp(spread * rng.normal(size=n) - spread**2 / 2)
    shift = rng.normal(0, world.score_level, n)
    scale = np.exp(0.25 * rng.normal(size=n))
    query = np.repeat(np.arange(n), sizes)
    fit = rng.normal(size=len(query))
    if world.top_only:
        fit = np.abs(fit) * 1.2 - 0.9
    truth = expit(level[query] + slope[query] * fit)
    scores = scores_of(world.shape, fit, shift[query], scale[query], rng)
    labels = (rng.random(len(query)) < truth).astype(float)
    return Pool(scores, truth, labels, query)


def scores_of(
    shape: str, fit: np.ndarray, shift: np.ndarray, scale: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    if shape == "bm25":
        return np.maximum(0.1, 9 + 3 * shift + 2.5 * scale * np.expm1(0.45 * fit))
    if shape == "logit":
        low = np.where(rng.random(len(fit)) < 0.3, -2, 0)
        return -2 + 3.5 * fit * scale + shift + low
    if shape == "saturated":
        return expit(1.5 + 5 * (fit + 0.4 * shift))
    return np.round(np.clip(0.68 + 0.008 * fit * scale + 0.004 * shift, 0.65, 0.71), 4)


def log_loss(probabilities: np.ndarray, truth: np.ndarray) -> float:
    return cr.LogLoss()(probabilities, cr.Evidence(truth, np.ones(len(truth))))


def figures(number: int) -> dict[str, float] | None:
    """What one world shows; None where its labels have no fit."""
    rng = np.random.default_rng(FIRST_SEED + number)
    world = draw_world(SHAPES[number // 2 % 4], rng, weak=bool(number % 2))
    known = draw_pool(world, world.queries, rng)
    new = draw_pool(world, NEW_QUERIES, np.random.default_rng(10**6 + FIRST_SEED + number))
    kept = np.random.default_rng(1).permutation(len(new.scores))[:NEW_ROWS]
    truth = new.truth[kept]
    try:
        model = cr.Auto() + cr.Group("query")
        fitted = model.fit(known.scores, known.labels, {"query": known.query})
    except cr.FitError:
        return None
    predicted = fitted.predict(new.scores[kept])
    constant = np.full(len(kept), known.labels.mean())
    result = {"loss": log_loss(predicted, truth) - log_loss(constant, truth)}
    regions = {"at least 0.5": predicted >= 0.5, "0.45 to 0.55": np.abs(predicted - 0.5) <= 0.05}
    for name, inside in regions.items():
        if inside.sum() >= 100:
            result[name] = float((truth - predicted)[inside].mean())
    return result


def main() -> None:
    """Print the figures over all worlds."""
    parser = argparse.ArgumentParser(description="A level per query where the truth is known.")
    parser.add_argument("--worlds", type=int, default=160)
    # A flat map is no news: its loss shows it.
    warnings.simplefilter("ignore", FlatMapWarning)
    drawn = [figures(number) for number in range(parser.parse_args().worlds)]
    found = [each for each in drawn if each is not None]
    losses = np.array([each["loss"] for each in found])
    print(f"log loss minus the constant's: {losses.mean():+.4f}, at most {losses.max():+.4f}")
    above = f"{np.mean(losses > 0):.0%}, by .001 in {np.mean(losses > 1e-3):.0%}"
    print(f"above the constant's in {above} of {len(losses)} worlds")
    for name in ("at least 0.5", "0.45 to 0.55"):
        gaps = np.array([each[name] for each in found if name in each])
        error = gaps.std() / np.sqrt(len(gaps))
        root = np.sqrt((gaps**2).mean())
        print(f"{name}: {gaps.mean():+.4f} (s.e. {error:.4f}), root mean square {root:.4f}")


if __name__ == "__main__":
    main()
