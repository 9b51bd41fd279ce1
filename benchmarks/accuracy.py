"""The accuracy cost of pooling: fits on a summary against exact fits on all of 1e7 rows.

Exits with 1 if parameters or ECE differ by more than the limits.
"""

import sys

import numpy as np
from tests.mixed_scores import MixedScores

from calibrank import ECE, Gaussian, Platt, Summary
from calibrank.curves import Calibrator
from calibrank.data.score_world import GammaScores, GaussianScores, World, make_world
from calibrank.summary.bins import Masses

ROWS = 10_000_000
PARAMETER_LIMIT = 1e-7
ECE_LIMIT = 1e-7


def unpooled_summary(scores: np.ndarray, labels: np.ndarray) -> Summary:
    """A summary with one bin per row."""
    order = np.argsort(scores)
    scores = scores[order]
    labels = labels[order]
    ones = np.ones(len(scores))
    masses = Masses(labels, ones, labels * scores, scores, scores**2, labels, labels, ones)
    low = float(scores[0])
    high = float(scores[-1])
    keys = np.empty(0, dtype=np.int64)
    return Summary(scores, masses, len(scores), low, high, "naive", None, keys)


def differences(
    method: Calibrator, world: World, exact: Summary, pooled: Summary
) -> tuple[float, float]:
    """The largest relative difference of a parameter, and the difference of ECE."""
    exact_map = method.fit_summary(exact)
    pooled_map = method.fit_summary(pooled)
    relative = 0.0
    for name, value in exact_map.parameters.items():
        relative = max(relative, abs(pooled_map.parameters[name] / value - 1))
    exact_ece = ECE()(exact_map.predict(world.scores), world.preferences)
    pooled_ece = ECE()(pooled_map.predict(world.scores), world.preferences)
    return relative, abs(exact_ece - pooled_ece)


def report(what: str, worst: float, limit: float) -> bool:
    passed = worst <= limit
    status = "ok  " if passed else "MISS"
    print(f"{status} largest {what}: {worst:.1e} (at most {limit:.0e})")
    return passed


def main() -> None:
    worst_parameter = 0.0
    worst_ece = 0.0
    for shape in (GaussianScores(), GammaScores(), MixedScores()):
        world = make_world(ROWS, shape)
        exact = unpooled_summary(world.scores, world.preferences)
        pooled = Summary.of(world.scores, world.preferences)
        for method in (Platt(), Gaussian()):
            parameter, ece = differences(method, world, exact, pooled)
            worst_parameter = max(worst_parameter, parameter)
            worst_ece = max(worst_ece, ece)
            name = f"{type(shape).__name__:15} {method.name:9}"
            print(f"{name} parameters {parameter:.1e}  ECE {ece:.1e}")
    parameters_pass = report("relative error of a parameter", worst_parameter, PARAMETER_LIMIT)
    ece_passes = report("change of ECE", worst_ece, ECE_LIMIT)
    sys.exit(0 if parameters_pass and ece_passes else 1)


if __name__ == "__main__":
    main()
