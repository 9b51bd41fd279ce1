"""Anchoring with terms (levels, functions, positions) against anchoring without, with k labels.

`python benchmarks/few_labels.py scores/*.npz` on files that `benchmarks/arena_scores.py` writes.
For each file and k, labels are drawn from the test set ten times, and every method is evaluated
on the other rows: the log loss of the single anchored map, and what each method changes, with the
paired standard error over draws. The last columns are the ECE of each user's top 5, for labels that
are uniformly random, and for as many of which 30% are drawn at the top (`choose_top_pairs`).

Levels are five groups of item popularity and four of user activity, both counted in the log;
functions are of the logarithms of the same counts. Nothing is chosen per dataset.
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import calibrank as cr
from calibrank.anchoring import choose_top_pairs, list_ranks

SIZES = (300, 1_000, 3_000, 10_000)
EVALUATED = 100_000
POPULATION = 20_000
TOP = 5


@dataclass(frozen=True)
class World:
    """The scores of one model, and what the log says about users and items."""

    biased: cr.CalibrationMap
    scores: np.ndarray
    labels: np.ndarray
    users: np.ndarray
    ranks: np.ndarray
    numbers: dict[str, np.ndarray]
    levels: dict[str, np.ndarray]

    @property
    def population(self) -> slice:
        return slice(None, None, max(1, len(self.scores) // POPULATION))


def read(file: Path) -> World:
    with np.load(file) as arrays:
        found = {name: arrays[name] for name in arrays.files}
    liked = found["pair_labels"] > 0
    counts = {}
    for name in ("items", "users"):
        ids = found[f"pair_{name}"][liked].astype(np.int64)
        asked = found[f"test_{name}"]
        by_id = np.bincount(ids, minlength=int(asked.max()) + 1)
        counts[name] = np.log1p(by_id[asked])
    propensity = np.clip(found["propensity"].astype(float), 1e-6, 1)
    evidence = cr.ips(found["pair_labels"], propensity, weights=found["weights"].astype(float))
    scores = found["test_scores"].astype(float)
    return World(
        biased=cr.Gaussian().fit(found["pair_scores"].astype(float), evidence),
        scores=scores,
        labels=found["test_labels"].astype(float),
        users=found["test_users"],
        ranks=list_ranks(scores, found["test_users"]),
        numbers={"popularity": counts["items"], "activity": counts["users"]},
        levels={
            "popularity": quantile_groups(counts["items"], 5),
            "activity": quantile_groups(counts["users"], 4),
        },
    )


def quantile_groups(values: np.ndarray, groups: int) -> np.ndarray:
    edges = np.unique(np.quantile(values, np.arange(1, groups) / groups))
    return np.searchsorted(edges, values, side="right")


def losses(p: np.ndarray, labels: np.ndarray) -> float:
    p = np.clip(p, 1e-9, 1 - 1e-9)
    return float(-(labels * np.log(p) + (1 - labels) * np.log1p(-p)).mean())


def take(columns: dict[str, np.ndarray], rows: np.ndarray) -> dict[str, np.ndarray]:
    return {name: values[rows] for name, values in columns.items()}


def draw(world: World, k: int, seed: int) -> dict[str, float]:
    """Log losses of one draw, and ECEs of the top."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(world.scores))
    used, rest = order[:k], order[k : k + EVALUATED]
    scores, labels = world.scores[used], world.labels[used]
    population = world.scores[world.population]
    one = cr.anchor(world.biased, scores, labels, population=population)
    levels = [cr.Level(*world.levels)]
    with_levels = cr.anchor(
        world.biased, scores, labels, take(world.levels, used), population=population, terms=levels
    )
    functions = [cr.Smooth(name) for name in world.numbers]
    with_functions = cr.anchor(
        world.biased,
        scores,
        labels,
        take(world.numbers, used),
        population=population,
        terms=functions,
    )
    asked = world.scores[rest]
    predictions = {
        "one map": one.predict(asked),
        "levels": with_levels.predict(asked, take(world.levels, rest)),
        "functions": with_functions.predict(asked, take(world.numbers, rest)),
    }
    found = {name: losses(p, world.labels[rest]) for name, p in predictions.items()}
    return found | top_of_list(world, one, used, k, rng)


def top_of_list(
    world: World, one: cr.CalibrationMap, used: np.ndarray, k: int, rng: np.random.Generator
) -> dict[str, float]:
    """Log loss and ECE of each user's top 5, on pairs that were not labelled."""
    at_top = np.flatnonzero(world.ranks <= TOP)
    share = max(0.3, len(at_top) / len(world.scores))
    count = min(k, int(len(at_top) / share))
    chosen = choose_top_pairs(one, world.scores, world.ranks, count, TOP, share=share, seed=rng)
    uniform = fit_top(world, used, None)
    designed = fit_top(world, chosen.rows, chosen.propensity)
    rest = np.setdiff1d(at_top, np.concatenate([used, chosen.rows]))
    scores, labels = world.scores[rest], world.labels[rest]
    ranks = {"rank": world.ranks[rest]}
    found = {}
    for name, p in (
        ("one map", one.predict(scores)),
        ("top", uniform.predict(scores, ranks)),
        ("30% at top", designed.predict(scores, ranks)),
    ):
        found[f"top5 loss, {name}"] = losses(p, labels)
        found[f"top5 ECE, {name}"] = cr.ECE()(p, labels)
    right = designed.predict(scores, ranks)
    found["top5 ECE, chance"] = cr.ECE()(right, (rng.random(len(right)) < right).astype(float))
    return found


def fit_top(world: World, rows: np.ndarray, propensity: np.ndarray | None) -> cr.CalibrationMap:
    thinned = world.population
    return cr.anchor(
        world.biased,
        world.scores[rows],
        world.labels[rows],
        {"rank": world.ranks[rows]},
        propensity=propensity,
        population={"score": world.scores[thinned], "rank": world.ranks[thinned]},
        terms=[cr.Position("rank", TOP)],
    )


def compare(by_draw: list[dict[str, float]], name: str, against: str) -> str:
    differences = np.array([each[name] - each[against] for each in by_draw])
    error = differences.std(ddof=1) / np.sqrt(len(differences))
    return f"{differences.mean():+.4f} ± {error:.4f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    options = parser.parse_args()
    # Ten draws say more about precision than the warning of each.
    warnings.simplefilter("ignore", cr.CalibrankWarning)
    print(
        "file | k | one map | levels | functions | top 5: one map | own map | 30% at top "
        "| ECE@5: one map | own map | 30% at top | by chance"
    )
    for file in options.files:
        world = read(file)
        for k in options.sizes:
            if 2 * k > len(world.scores):
                continue
            found = [draw(world, k, seed) for seed in range(options.draws)]
            mean = {name: float(np.mean([each[name] for each in found])) for name in found[0]}
            cells = [file.stem, f"{k:,}", f"{mean['one map']:.4f}"]
            cells += [compare(found, name, "one map") for name in ("levels", "functions")]
            cells.append(f"{mean['top5 loss, one map']:.4f}")
            for name in ("top", "30% at top"):
                cells.append(compare(found, f"top5 loss, {name}", "top5 loss, one map"))
            for name in ("one map", "top", "30% at top", "chance"):
                cells.append(f"{mean[f'top5 ECE, {name}']:.3f}")
            print(" | ".join(cells), flush=True)


if __name__ == "__main__":
    main()
