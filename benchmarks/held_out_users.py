"""Segments and covariates against one map, fitted on half of the users of a test set.

`python benchmarks/held_out_users.py scores/kuairec-BPR-0.npz` on files that
`benchmarks/arena_scores.py` writes. All labels of half of the users are used for the fit, and the
other half for the evaluation: log losses, and how far the mean probability is off in the worst
segment. Segments and covariates are those of `benchmarks/few_labels.py`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

import calibrank as cr

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.few_labels import World, losses, read, take

# A smaller segment is off by chance.
FEWEST_ROWS = 200


def predictions(world: World, fit: np.ndarray, test: np.ndarray) -> dict[str, np.ndarray]:
    """Probabilities of the rows `test` by maps of the rows `fit`."""
    scores, labels = world.scores[fit], world.labels[fit]
    by = tuple(world.segments)
    one = cr.Gaussian().fit(scores, labels)
    grouped = cr.Segments(by, base=cr.Gaussian()).fit(scores, labels, take(world.segments, fit))
    additive = cr.Covariates(by, base=cr.Gaussian()).fit(scores, labels, take(world.features, fit))
    asked = world.scores[test]
    return {
        "constant": np.full(len(test), labels.mean()),
        "one map": one.predict(asked),
        "segments": grouped.predict(asked, take(world.segments, test)),
        "covariates": additive.predict(asked, take(world.features, test)),
    }


def worst(p: np.ndarray, labels: np.ndarray, segments: dict[str, np.ndarray]) -> float:
    """How far the mean probability of the worst segment is from its rate of positives."""
    both = np.column_stack(list(segments.values()))
    _, segment = np.unique(both, axis=0, return_inverse=True)
    rows = np.bincount(segment.ravel())
    gap = np.bincount(segment.ravel(), p - labels) / rows
    return float(np.abs(gap[rows >= FEWEST_ROWS]).max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--splits", type=int, default=5)
    options = parser.parse_args()
    print("file | map | log loss | worst segment is off by")
    for file in options.files:
        world = read(file)
        users = np.unique(world.users)
        found: dict[str, list[tuple[float, float]]] = {}
        for split in range(options.splits):
            chosen = np.random.default_rng(split).permutation(users)[: len(users) // 2]
            is_fit = np.isin(world.users, chosen)
            fit, test = np.flatnonzero(is_fit), np.flatnonzero(~is_fit)
            labels, segments = world.labels[test], take(world.segments, test)
            for name, p in predictions(world, fit, test).items():
                figures = losses(p, labels), worst(p, labels, segments)
                found.setdefault(name, []).append(figures)
        for name, figures in found.items():
            loss, gap = np.mean(figures, axis=0)
            print(f"{file.stem} | {name} | {loss:.4f} | {gap:.3f}", flush=True)


if __name__ == "__main__":
    main()
