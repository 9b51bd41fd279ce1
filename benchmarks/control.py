"""How often a guaranteed threshold breaks its promise, on labels of all pairs.

`python benchmarks/control.py scores/kuairec-*.npz` on files that `benchmarks/arena_scores.py`
writes. In each of 200 splits of the users, a map is fitted on a fifth of them, `control` gets half
of the others, and the promise is compared with what all users are shown at the threshold that it
found. A confidence of 95% allows 5% broken promises.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import calibrank as cr

LONGEST = 10
SPLITS = 200
PROMISES = (0.4, 0.5, 0.6)


def best_pairs(probabilities: np.ndarray, users: np.ndarray) -> np.ndarray:
    """Rows of each user's `LONGEST` most probable pairs."""
    order = np.lexsort((-probabilities, users))
    starts = np.concatenate([[0], np.cumsum(np.bincount(users))[:-1]])
    rank = np.arange(len(order)) - starts[users[order]]
    return order[rank < LONGEST]


def unwanted_share(probabilities: np.ndarray, labels: np.ndarray, threshold: float) -> float:
    shown = probabilities >= threshold
    return float(1 - labels[shown].mean()) if shown.any() else 0.0


def run_split(
    file: dict[str, np.ndarray], promise: float, rng: np.random.Generator
) -> tuple[float | None, float]:
    """The threshold, and the unwanted share of what all users are shown at it."""
    users = file["users"]
    draw = rng.random(users.max() + 1)[users]
    fitted_on = draw < 0.2
    fitted = cr.Gaussian().fit(file["scores"][fitted_on], file["labels"][fitted_on])
    # Only each user's best pairs are shown, which an increasing map does not change.
    best = file["best"]
    probabilities = fitted.predict(file["scores"][best])
    labels = file["labels"][best]
    asked = (draw[best] >= 0.2) & (draw[best] < 0.6)
    found = cr.control(
        probabilities[asked],
        labels[asked],
        users[best][asked],
        unwanted=promise,
        longest=LONGEST,
    )
    if found.threshold is None:
        return None, 0.0
    return found.threshold, unwanted_share(probabilities, labels, found.threshold)


def read(path: Path) -> dict[str, np.ndarray]:
    arrays = np.load(path)
    scores = arrays["test_scores"].astype(np.float64)
    users = np.unique(arrays["test_users"], return_inverse=True)[1]
    labels = arrays["test_labels"].astype(np.float64)
    return {"scores": scores, "labels": labels, "users": users, "best": best_pairs(scores, users)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--splits", type=int, default=SPLITS)
    arguments = parser.parse_args()
    print("scores | promised at most | broken | with a threshold | threshold | unwanted there")
    for path in arguments.files:
        file = read(path)
        for promise in PROMISES:
            rng = np.random.default_rng(0)
            results = [run_split(file, promise, rng) for _ in range(arguments.splits)]
            found = [(level, share) for level, share in results if level is not None]
            broken = sum(share > promise for _, share in found)
            middle = np.median(np.array(found), axis=0) if found else (np.nan, np.nan)
            print(
                f"{path.stem} | {promise:.0%} | {broken} of {arguments.splits} | {len(found)} | "
                f"{middle[0]:.2f} | {middle[1]:.0%}",
                flush=True,
            )


if __name__ == "__main__":
    main()
