"""Doubly robust evidence against self-normalised weights and anchoring, on Coat.

`python benchmarks/doubly_robust.py FOLDER` with Coat's files. Per seed, half of each user's ratings
train a truncated SVD, whose scores are calibrated (Platt) on the other half, with Coat's own
propensities, those of popularity, and equal ones. The outcome model is a Platt curve of the first
half's ratings, unweighted. Maps are evaluated on randomly shown pairs, 100 of which anchor them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import calibrank as cr

SEEDS = 20
RANK = 10
LABELS = 100


def svd(ratings: np.ndarray, shown: np.ndarray) -> np.ndarray:
    """Scores of all pairs: ratings minus their mean, 0 elsewhere, at a low rank."""
    centered = np.where(shown, ratings - ratings[shown].mean(), 0.0)
    left, values, right = np.linalg.svd(centered, full_matrices=False)
    scores: np.ndarray = (left[:, :RANK] * values[:RANK]) @ right[:RANK]
    return scores


def maps(
    scores: np.ndarray, liked: np.ndarray, first: np.ndarray, second: np.ndarray, w: np.ndarray
) -> dict[str, cr.CalibrationMap]:
    """Fitted on the second half of the ratings; the first half are no candidates."""
    # Half of the ratings are in the second half, given that a pair is not in the first.
    half = np.clip(w / 2 / (1 - w / 2), 1e-3, 1)
    outcome = cr.Platt().fit(scores[first], liked[first])
    rest = ~first
    labels = np.where(second, liked, np.nan)[rest]
    robust = cr.doubly_robust(labels, half[rest], outcome.predict(scores[rest]))
    return {
        "self-normalised": cr.Platt().fit(
            scores[second], cr.impressions(liked[second], half[second])
        ),
        "doubly robust": cr.Platt().fit(scores[rest], robust),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    train, test = np.loadtxt(folder / "train.ascii"), np.loadtxt(folder / "test.ascii")
    rated = train > 0
    counts = rated.sum(axis=0)
    propensities = {
        "Coat's": np.loadtxt(folder / "propensities.ascii"),
        "popularity": np.broadcast_to(counts / len(train), train.shape),
        "equal": np.full(train.shape, rated.mean()),
    }
    found: dict[str, list[list[float]]] = {}
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        first = rated & (rng.random(train.shape) < 0.5)
        second = rated & ~first
        liked = (train > 3).astype(float)
        scores = svd(train, first)
        shown = np.flatnonzero(test.ravel() > 0)
        rng.shuffle(shown)
        few, others = shown[:LABELS], shown[LABELS:]
        truth = (test.ravel() > 3).astype(float)
        flat = scores.ravel()
        for name, w in propensities.items():
            for kind, fitted in maps(scores, liked, first, second, w).items():
                anchored = cr.anchor(fitted, flat[few], truth[few])
                row = []
                for each in (fitted, anchored):
                    p = each.predict(flat[others])
                    row += [cr.ECE()(p, truth[others]), cr.LogLoss()(p, truth[others])]
                found.setdefault(f"{name} | {kind}", []).append(row)
    print(f"propensities | evidence | ECE | log loss | anchored on {LABELS}: ECE | log loss")
    for name, rows in found.items():
        mean = np.mean(rows, axis=0)
        error = np.std(rows, axis=0) / np.sqrt(SEEDS)
        cells = [f"{m:.4f} (se {e:.4f})" for m, e in zip(mean, error, strict=True)]
        print(f"{name} | {' | '.join(cells)}")


if __name__ == "__main__":
    main()
