"""What pooling costs in accuracy: a summary's fit against an exact one on all of 1e7 rows. Exits 1 if too much."""

import sys

import numpy as np

from calibrank import ECE, Gaussian, Platt, Summary
from calibrank.data.score_world import GammaScores, GaussianScores, MixedScores, make_world
from calibrank.summary.bins import Masses

ROWS = 10_000_000


def rowwise(scores: np.ndarray, labels: np.ndarray) -> Summary:
    """A summary that pools nothing: one bin a row."""
    order = np.argsort(scores)
    scores, labels, ones = scores[order], labels[order], np.ones(len(scores))
    masses = Masses(labels, ones, labels * scores, scores, labels, labels, ones)
    low, high = float(scores[0]), float(scores[-1])
    return Summary(
        scores, masses, len(scores), low, high, "naive", None, np.empty(0, dtype=np.int64)
    )


def main() -> None:
    worst, gap = 0.0, 0.0
    for shape in (GaussianScores(), GammaScores(), MixedScores()):
        world = make_world(ROWS, shape)
        exact, pooled = (
            rowwise(world.scores, world.preferences),
            Summary.of(world.scores, world.preferences),
        )
        for method in (Platt(), Gaussian()):
            one, other = method.fit_summary(exact), method.fit_summary(pooled)
            relative = max(abs(other.parameters[n] / v - 1) for n, v in one.parameters.items())
            eces = [
                ECE()(fitted.predict(world.scores), world.preferences) for fitted in (one, other)
            ]
            change = abs(eces[0] - eces[1])
            worst, gap = max(worst, relative), max(gap, change)
            print(
                f"{type(shape).__name__:15} {method.name:9} parameters {relative:.1e}  ECE {change:.1e}"
            )
    print(
        f"{'ok  ' if worst <= 1e-5 else 'MISS'} worst relative error of a parameter: {worst:.1e} (at most 1e-5)"
    )
    print(f"{'ok  ' if gap <= 1e-6 else 'MISS'} worst change of ECE: {gap:.1e} (at most 1e-6)")
    sys.exit(0 if worst <= 1e-5 and gap <= 1e-6 else 1)


if __name__ == "__main__":
    main()
