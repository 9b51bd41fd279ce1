"""What `calibrank search` says of synthetic judged pools, against the truth of new queries.

    python -m benchmarks.search_intervals --worlds 80

Pools are those of `judged_pools.py` with 20 to 30 queries of about 10 to 25 judged documents. Of
each there is a copy whose scores say nothing. Prints how often "it is better than a constant" is
said and right, how often the 95% interval of the gain holds the gain of the map of all queries on
10,000 new queries, how often the intervals at a threshold for a precision of 60% hold what the map
of all queries has there, how far that precision falls short, and how the planned error compares
with the error of the map.
"""

import argparse
import warnings
from typing import NamedTuple

import numpy as np
from benchmarks.judged_pools import SHAPES, Pool, World, draw_pool, draw_world, log_loss

import calibrank as cr
from calibrank.errors import FlatMapWarning
from calibrank.metrics import Estimate
from calibrank.search import (
    Judged,
    choose_cut,
    fit_judged,
    held_out_losses,
    held_out_probabilities,
    loss_folds,
)

NEW_QUERIES = 10_000
WANTED = 0.6
SHORT = 0.05
# Bins of equal mass, in which the mean truth is the probability that a score stands for.
BINS = 200
FIRST_SEED = 90_000


class Found(NamedTuple):
    """What was said of a pool, and what is true; NaN without a threshold."""

    gain: Estimate
    true_gain: float
    precision: Estimate
    true_precision: float
    recall: Estimate
    true_recall: float


def judged_of(pool: Pool) -> Judged:
    documents = np.arange(len(pool.query))
    labels = cr.impressions(pool.labels)
    return Judged(pool.query, documents, pool.scores, pool.labels, labels, "all")


def small_world(number: int, rng: np.random.Generator) -> World:
    world = draw_world(SHAPES[number % 4], rng, weak=bool(number // 4 % 2))
    size, size_spread = rng.uniform(10, 25), rng.uniform(0.1, 0.7)
    return world._replace(
        queries=int(rng.integers(20, 31)), size=float(size), size_spread=float(size_spread)
    )


def gain_of(judged: Judged) -> Estimate:
    folds = loss_folds(judged.n_queries)
    return held_out_losses(judged, held_out_probabilities(judged, folds), folds)["LogLossGain"]


def informative(number: int) -> Found:
    rng = np.random.default_rng([FIRST_SEED + number, 1])
    world = small_world(number, rng)
    pool = draw_pool(world, world.queries, rng)
    judged = judged_of(pool)
    fitted = fit_judged(judged)
    new = draw_pool(world, NEW_QUERIES, rng)
    predicted = fitted.predict(new.scores)
    constant = np.full(len(predicted), pool.labels.mean())
    true_gain = log_loss(constant, new.truth) - log_loss(predicted, new.truth)
    cut = choose_cut(judged, held_out_probabilities(judged), "precision", WANTED)
    kept = predicted >= (np.inf if cut.threshold is None else cut.threshold)
    relevant = float(new.truth[kept].sum())
    true_precision = relevant / kept.sum() if kept.any() else float("nan")
    true_recall = relevant / float(new.truth.sum())
    gain = gain_of(judged)
    at_cut = (cut.precision, true_precision, cut.recall, true_recall)
    return Found(gain, true_gain, *at_cut)


def uninformative(number: int) -> Estimate:
    rng = np.random.default_rng([FIRST_SEED + number, 0])
    world = small_world(number, rng)._replace(slope=0.0)
    return gain_of(judged_of(draw_pool(world, world.queries, rng)))


def share(flags: list[bool]) -> str:
    return f"{sum(flags)} of {len(flags)} ({np.mean(flags):.0%})" if flags else "none"


def holds(estimate: Estimate, truth: float) -> bool:
    return estimate.low <= truth <= estimate.high


def main() -> None:
    """Print what was said and what is true."""
    parser = argparse.ArgumentParser(description="Intervals of searches against the truth.")
    parser.add_argument("--worlds", type=int, default=80)
    worlds = parser.parse_args().worlds
    # A flat map is no news: its loss shows it.
    warnings.simplefilter("ignore", FlatMapWarning)
    empty = [uninformative(number) for number in range(worlds)]
    print(f"scores that say nothing: 'better' said of {share([each.low > 0 for each in empty])}")
    found = [informative(number) for number in range(worlds)]
    better = [each for each in found if each.gain.low > 0]
    print(f"other scores: 'better' said of {share([each.gain.low > 0 for each in found])}")
    print(f"  and true of {share([each.true_gain > 0 for each in better])}")
    large = [each for each in found if each.true_gain > 0.02]
    for name, some in (("all", found), ("gain above .02", large)):
        inside = share([holds(each.gain, each.true_gain) for each in some])
        too_low = share([each.gain.high < each.true_gain for each in some])
        print(f"interval of the gain, {name}: holds {inside}, too low {too_low}")
    cuts = [each for each in found if not np.isnan(each.precision.value)]
    cuts = [each for each in cuts if not np.isnan(each.true_precision)]
    print(f"threshold for {WANTED:.0%} precision: in {len(cuts)} of {len(found)} pools")
    inside = share([holds(each.precision, each.true_precision) for each in cuts])
    print(f"  interval of the precision holds {inside}")
    print(f"  of the recall {share([holds(each.recall, each.true_recall) for each in cuts])}")
    gaps = np.array([each.precision.value - each.true_precision for each in cuts])
    error = gaps.std() / np.sqrt(len(gaps))
    print(f"  claimed minus true precision {gaps.mean():+.3f} (s.e. {error:.3f})")
    print(f"  below by 5 points: {share([WANTED - each.true_precision > SHORT for each in cuts])}")


if __name__ == "__main__":
    main()
