"""The demo: every method on a world where the truth is known."""

import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from calibrank._validation import Floats
from calibrank.calibrators import Calibrator, Gaussian
from calibrank.data.score_world import World, make_world
from calibrank.errors import FlatMapWarning
from calibrank.evidence import Evidence, ips, naive
from calibrank.maps import CalibrationMap, load
from calibrank.metrics import (
    ECE,
    MCE,
    Brier,
    CalibrationInTheLarge,
    LogLoss,
    Metric,
    ReliabilityCurve,
    reliability,
)
from calibrank.plots import fitted_functions, reliability_grid
from calibrank.propensity import Popularity
from calibrank.registry import CALIBRATORS

GUESSED = "popularity"
METRICS: tuple[Metric, ...] = (ECE(), MCE(), LogLoss(), Brier(), CalibrationInTheLarge())


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One method fitted with one loss, judged against true preferences."""

    method: str
    loss: str
    fitted: CalibrationMap
    values: dict[str, float]
    curve: ReliabilityCurve


@dataclass(frozen=True, slots=True, eq=False)
class Demo:
    """A world, a fresh test set drawn from it, and every method's run."""

    world: World
    test: World
    runs: list[Run]

    def find(self, method: str, loss: str) -> Run:
        """The run of a method with a loss."""
        return next(run for run in self.runs if (run.method, run.loss) == (method, loss))


def run_demo(pairs: int, seed: int) -> Demo:
    """Fit every method naively, with true propensities, and (the best one) with popularity's guess at them."""
    world = make_world(pairs, seed=seed)
    test = world.redraw(seed + 1)
    guessed = Popularity().fit(world.interactions()).predict(world.users, world.items)
    plain, unbiased = naive(world.labels), ips(world.labels, world.propensity)
    runs = []
    for method in CALIBRATORS.values():
        runs.append(_run(method, "naive" if method.learns else "none", plain, world, test))
        if method.learns:
            runs.append(_run(method, "UERM", unbiased, world, test))
    runs.append(_run(Gaussian(), GUESSED, ips(world.labels, guessed), world, test))
    return Demo(world, test, runs)


def save_figures(demo: Demo, folder: Path) -> list[Path]:
    """Write the reliability diagrams and the fitted functions."""
    folder.mkdir(parents=True, exist_ok=True)
    panels: dict[str, dict[str, ReliabilityCurve]] = {}
    for run in demo.runs:
        if run.loss != GUESSED:
            label = {
                "none": "not calibrated",
                "naive": "naive log loss",
                "UERM": "UERM (inverse propensity)",
            }[run.loss]
            panels.setdefault(run.method, {})[label] = run.curve
    first = reliability_grid(
        panels, "Is 30 % really 30 %? Predicted against true preference, on the diagonal is right"
    )
    low, high = np.quantile(demo.test.scores, [0.001, 0.999]).tolist()
    scores = np.linspace(low, high, 400)
    second = fitted_functions(
        scores, _functions(demo, scores), demo.world.probability(scores), "Fitted with UERM"
    )
    paths = [folder / "reliability.png", folder / "functions.png"]
    for figure, path in zip((first, second), paths, strict=True):
        figure.savefig(path, dpi=150)
    return paths


def save_and_reload(demo: Demo, path: Path) -> bool:
    """Save the Gaussian UERM map, load it back, and check that nothing changed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fitted = demo.find("Gaussian", "UERM").fitted
    fitted.save(path)
    scores = demo.test.scores
    return bool(np.array_equal(load(path).predict(scores), fitted.predict(scores)))


def _functions(demo: Demo, scores: Floats) -> dict[str, Floats]:
    curves = {
        name: demo.find(name, "UERM").fitted.predict(scores)
        for name in ("Platt", "Gaussian", "Gamma")
    }
    return {**curves, "Gaussian, naive": demo.find("Gaussian", "naive").fitted.predict(scores)}


def _run(method: Calibrator, loss: str, evidence: Evidence, world: World, test: World) -> Run:
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", FlatMapWarning
        )  # Temperature suits no ranking score: the table shows it
        fitted = method.fit(world.scores, evidence)
    probabilities = fitted.predict(test.scores)
    values = {metric.name: metric(probabilities, test.preferences) for metric in METRICS}
    return Run(method.name, loss, fitted, values, reliability(probabilities, test.preferences))
