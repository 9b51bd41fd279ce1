"""A curve with levels or functions against one curve, fitted on half of the users of a test set.

`python benchmarks/held_out_users.py scores/kuairec-BPR-0.npz` on files that
`benchmarks/arena_scores.py` writes. All labels of half of the users are used for the fit, and the
other half for the evaluation: log losses, and how far the mean probability is off in the worst
level. Levels and functions are those of `benchmarks/few_labels.py`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

import calibrank as cr

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.few_labels import World, losses, read, take

# A smaller level is off by chance.
FEWEST_ROWS = 200


def predictions(world: World, fit: np.ndarray, test: np.ndarray) -> dict[str, np.ndarray]:
    """Probabilities of the rows `test` by maps of the rows `fit`."""
    scores, labels = world.scores[fit], world.labels[fit]
    one = cr.Gaussian().fit(scores, labels)
    by_level = cr.Gaussian() + cr.Level(*world.levels)
    with_levels = by_level.fit(scores, labels, take(world.levels, fit))
    smooth = cr.Model(cr.Gaussian(), tuple(map(cr.Smooth, world.numbers)))
    with_functions = smooth.fit(scores, labels, take(world.numbers, fit))
    asked = world.scores[test]
    return {
        "constant": np.full(len(test), labels.mean()),
        "one map": one.predict(asked),
        "levels": with_levels.predict(asked, take(world.levels, test)),
        "functions": with_functions.predict(asked, take(world.numbers, test)),
    }


def worst(p: np.ndarray, labels: np.ndarray, levels: dict[str, np.ndarray]) -> float:
    """How far the mean probability of the worst level is from its rate of positives."""
    both = np.column_stack(list(levels.values()))
    _, level = np.unique(both, axis=0, return_inverse=True)
    rows = np.bincount(level.ravel())
    gap = np.bincount(level.ravel(), p - labels) / rows
    return float(np.abs(gap[rows >= FEWEST_ROWS]).max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--splits", type=int, default=5)
    options = parser.parse_args()
    print("file | map | log loss | worst level is off by")
    for file in options.files:
        world = read(file)
        users = np.unique(world.users)
        found: dict[str, list[tuple[float, float]]] = {}
        for split in range(options.splits):
            chosen = np.random.default_rng(split).permutation(users)[: len(users) // 2]
            is_fit = np.isin(world.users, chosen)
            fit, test = np.flatnonzero(is_fit), np.flatnonzero(~is_fit)
            labels, levels = world.labels[test], take(world.levels, test)
            for name, p in predictions(world, fit, test).items():
                figures = losses(p, labels), worst(p, labels, levels)
                found.setdefault(name, []).append(figures)
        for name, figures in found.items():
            loss, gap = np.mean(figures, axis=0)
            print(f"{file.stem} | {name} | {loss:.4f} | {gap:.3f}", flush=True)


if __name__ == "__main__":
    main()
