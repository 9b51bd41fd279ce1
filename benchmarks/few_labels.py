"""Where terms come from when k random labels are there: the log, the labels, or both by `anchor`.

`python benchmarks/few_labels.py scores/*.npz` on files that `benchmarks/arena_scores.py` writes.
The terms are functions of the logarithms of item popularity and user activity, both counted in the
log that the ranker was trained on. For each file and k, labels are drawn from the test set, and all
methods are evaluated on the other rows: the log loss (1e-4) of `anchor` without terms, and what
each method changes, with the paired standard error over draws. The last column is how much worse
`anchor` with both is than the better of log and labels. Rankers of one dataset, whose files begin
with its name, get the same rows in a draw: the last rows are means over them. The priors of
`anchor` were chosen on Coat and KuaiRec.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import calibrank as cr

SIZES = (30, 100, 300, 1_000, 3_000, 10_000)
EVALUATED = 100_000
POPULATION = 20_000


@dataclass(frozen=True)
class World:
    """The scores of one model, and what the log says about users and items."""

    biased: cr.CalibrationMap
    scores: np.ndarray
    labels: np.ndarray
    users: np.ndarray
    numbers: dict[str, np.ndarray]
    levels: dict[str, np.ndarray]

    @property
    def population(self) -> slice:
        return slice(None, None, max(1, len(self.scores) // POPULATION))


def read(file: Path) -> World:
    with np.load(file) as arrays:
        found = {name: arrays[name] for name in arrays.files}
    counts = {}
    numbers = {}
    for name, ids in (("popularity", "items"), ("activity", "users")):
        logarithms = np.log1p(found[name])
        counts[ids] = logarithms[found[f"test_{ids}"]]
        numbers[name] = logarithms[found[f"pair_{ids}"]]
    scores = found["test_scores"].astype(float)
    logged_scores = found["pair_scores"].astype(float)
    # With weights of 1 over propensity, no finite fit of terms exists on some logs.
    observed = cr.naive(found["pair_labels"], weights=found["weights"].astype(float))
    model = cr.Model(cr.Gaussian(), tuple(map(cr.Smooth, numbers)))
    return World(
        biased=model.fit(logged_scores, observed, numbers),
        scores=scores,
        labels=found["test_labels"].astype(float),
        users=found["test_users"],
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
    """Log losses of one draw."""
    order = np.random.default_rng(seed).permutation(len(world.scores))
    used, rest = order[:k], order[k : k + EVALUATED]
    shown = (world.scores[used], world.labels[used], take(world.numbers, used))
    population = world.scores[world.population]
    terms = tuple(map(cr.Smooth, world.numbers))
    # All start from the same curve, so that only the terms differ.
    start = world.biased.without_terms()
    none = cr.anchor(start, *shown, population=population)
    methods = {
        "none": none,
        "log": replace(none, terms=world.biased.terms),
        "labels": cr.anchor(start, *shown, population=population, terms=terms),
        "both": cr.anchor(world.biased, *shown, population=population),
    }
    columns = take(world.numbers, rest)
    found = {}
    for name, fitted in methods.items():
        p = fitted.predict(world.scores[rest], columns if fitted.terms else None)
        found[name] = 1e4 * losses(p, world.labels[rest])
    return found


def compare(by_draw: list[dict[str, float]], name: str, against: str) -> str:
    differences = np.array([each[name] - each[against] for each in by_draw])
    error = differences.std(ddof=1) / np.sqrt(len(differences))
    return f"{differences.mean():+.1f} ± {error:.1f}"


def mean_of(rankers: Sequence[dict[str, float]]) -> dict[str, float]:
    """The mean loss of each method over the rankers of one draw."""
    return {name: float(np.mean([each[name] for each in rankers])) for name in rankers[0]}


def print_row(name: str, k: int, found: list[dict[str, float]]) -> None:
    cells = [name, f"{k:,}", f"{np.mean([each['none'] for each in found]):.0f}"]
    cells += [compare(found, method, "none") for method in ("log", "labels", "both")]
    cells.append(compare(found, "both", "better"))
    print(f"| {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    options = parser.parse_args()
    # Ten draws say more about precision than the warning of each.
    warnings.simplefilter("ignore", cr.CalibrankWarning)
    print("| file | k | no terms | the log's | the labels' | both | both - the better |")
    print("|---" * 7 + "|")
    by_dataset: dict[tuple[str, int], list[list[dict[str, float]]]] = {}
    for file in options.files:
        world = read(file)
        for k in options.sizes:
            if k > 0.7 * len(world.scores):
                continue
            found = [draw(world, k, seed) for seed in range(options.draws)]
            better = min(("log", "labels"), key=lambda one: sum(each[one] for each in found))
            for each in found:
                each["better"] = each[better]
            print_row(file.stem, k, found)
            by_dataset.setdefault((file.stem.split("-")[0], k), []).append(found)
    for (dataset, k), rankers in by_dataset.items():
        print_row(
            f"{dataset}, mean of {len(rankers)}",
            k,
            [mean_of(each) for each in zip(*rankers, strict=True)],
        )


if __name__ == "__main__":
    main()
