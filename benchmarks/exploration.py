"""Which pairs to label: error after anchoring on uniformly drawn labels and on `choose_pairs`.

python benchmarks/exploration.py scores/coat-BPR-0.npz scores/kuairec-BPR-0.npz

The files are those of `benchmarks/arena_scores.py`. The truth is a spline through all labels of
the test pairs; the error is the mean absolute difference from it.
"""

import argparse

import numpy as np

import calibrank as cr
from calibrank.anchoring import choose_pairs

SIZES = (70, 100, 140, 200, 280, 400)
PAIRS = 30_000
POPULATION = 3_000


def errors(path: str, draws: int) -> dict[tuple[str, int], float]:
    rng = np.random.default_rng(0)
    saved = np.load(path)
    columns = ("pair_labels", "propensity", "weights", "pair_scores", "test_scores", "test_labels")
    log_labels, propensity, weights, log_scores, scores, labels = [
        saved[name].astype(float) for name in columns
    ]
    biased = cr.Gaussian().fit(log_scores, cr.ips(log_labels, propensity, weights=weights))
    spline = cr.Spline().fit(scores, labels)
    some = rng.permutation(len(scores))[:PAIRS]
    scores, labels = scores[some], labels[some]
    population = scores[:: max(1, len(scores) // POPULATION)]
    truth = spline.predict(population)
    found = {}
    for size in SIZES:
        for design in ("uniform", "choose_pairs"):
            distances = []
            for _ in range(draws):
                rows, chances = choose_pairs(biased, scores, size, seed=rng)
                if design == "uniform":
                    rows, chances = rng.choice(len(scores), size, replace=False), None
                given = scores[rows], labels[rows]
                anchored = cr.anchor(biased, *given, propensity=chances, population=population)
                distances.append(np.abs(anchored.predict(population) - truth).mean())
            found[design, size] = float(np.mean(distances))
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs="+")
    parser.add_argument("--draws", type=int, default=28)
    options = parser.parse_args()
    for path in options.files:
        found = errors(path, options.draws)
        for design in ("uniform", "choose_pairs"):
            figures = [f"{size}: {found[design, size]:.3f}" for size in SIZES]
            print(path, design, *figures)


if __name__ == "__main__":
    main()
