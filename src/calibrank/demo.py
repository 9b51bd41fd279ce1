"""The demo: every calibration method on synthetic data whose true preferences are known."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from calibrank._internal.validation import Floats
from calibrank.curves import Calibrator, Gaussian
from calibrank.data.score_world import World, make_world
from calibrank.errors import FlatMapWarning
from calibrank.evidence import Evidence, ips, naive
from calibrank.maps import CalibrationMap, load
from calibrank.metrics import Metric, ReliabilityCurve, reliability
from calibrank.plots import fitted_functions, reliability_grid
from calibrank.propensity import Popularity
from calibrank.registry import CALIBRATORS
from calibrank.registry import METRICS as ALL_METRICS

# Calibration first, as in the paper; the last one shows the base rate alone.
_SHOWN = ("ECE", "MCE", "LogLoss", "Brier", "CalibrationInTheLarge")
METRICS: tuple[Metric, ...] = tuple([ALL_METRICS[name] for name in _SHOWN])

_ESTIMATED = "popularity"
_CURVE_LABELS = {
    "none": "not calibrated",
    "naive": "naive log loss",
    "UERM": "UERM (inverse propensity)",
}
# The first non-parametric and the first parametric method: each opens a section of the table.
_GROUP_STARTS = ("Histogram", "Temperature")


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One method fitted with one loss, and evaluated against true preferences."""

    method: str
    loss: str
    fitted: CalibrationMap
    values: dict[str, float]
    curve: ReliabilityCurve

    @property
    def estimated(self) -> bool:
        """Whether propensities were estimated from popularity."""
        return self.loss == _ESTIMATED

    @property
    def starts_group(self) -> bool:
        """Whether the method is the first of its kind."""
        return self.method in _GROUP_STARTS


@dataclass(frozen=True, slots=True, eq=False)
class Demo:
    """Synthetic data, a test set drawn from the same distribution, and every method's run."""

    world: World
    test: World
    runs: list[Run]

    def find(self, method: str, loss: str) -> Run:
        """The run of a method with a loss."""
        return next(run for run in self.runs if (run.method, run.loss) == (method, loss))

    def lowest_loss(self, metric: Metric) -> float:
        """The lowest loss by a metric among the runs that did not estimate propensities."""
        known = [run for run in self.runs if not run.estimated]
        return min(metric.better.loss(run.values[metric.name]) for run in known)


def run_demo(pairs: int, seed: int) -> Demo:
    """Fit every method to unweighted labels and to labels weighted by true propensities.

    Gaussian is also fitted with propensities estimated from popularity, as most logs require.
    """
    world = make_world(pairs, seed=seed)
    test = world.redraw(seed + 1)
    runs = [_evaluate(*settings, world, test) for settings in _settings(world)]
    return Demo(world, test, runs)


def _settings(world: World) -> Iterator[tuple[Calibrator, str, Evidence]]:
    unweighted = naive(world.labels)
    weighted = ips(world.labels, world.propensity)
    for method in CALIBRATORS.values():
        if method.learns:
            yield method, "naive", unweighted
            yield method, "UERM", weighted
        else:
            yield method, "none", unweighted
    popularity = Popularity().fit(world.interactions())
    estimated = popularity.predict(world.users, world.items)
    yield Gaussian(), _ESTIMATED, ips(world.labels, estimated)


def _evaluate(method: Calibrator, loss: str, evidence: Evidence, world: World, test: World) -> Run:
    # Temperature cannot fit ranking scores; the result table shows it.
    with warnings.catch_warnings(action="ignore", category=FlatMapWarning):
        fitted = method.fit(world.scores, evidence)
    probabilities = fitted.predict(test.scores)
    values = {metric.name: metric(probabilities, test.preferences) for metric in METRICS}
    return Run(method.name, loss, fitted, values, reliability(probabilities, test.preferences))


def save_figures(demo: Demo, folder: Path) -> list[Path]:
    """Write the reliability diagrams and the fitted functions as PNG files."""
    folder.mkdir(parents=True, exist_ok=True)
    title = "Is 30% really 30%? Predicted probability against the rate liked, diagonal: calibrated"
    diagrams = reliability_grid(_panels(demo), title)
    # The range that holds nearly all scores: in the tails there is nothing to see.
    low, high = np.quantile(demo.test.scores, [0.001, 0.999]).tolist()
    scores = np.linspace(low, high, 400)
    truth = demo.world.probability(scores)
    functions = fitted_functions(scores, _functions(demo, scores), truth, "Fitted with UERM")
    paths = [folder / "reliability.png", folder / "functions.png"]
    for figure, path in zip((diagrams, functions), paths, strict=True):
        figure.savefig(path, dpi=150)
    return paths


def save_and_reload(demo: Demo, path: Path) -> bool:
    """Save the Gaussian UERM map, load it, and check that its probabilities are the same."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fitted = demo.find("Gaussian", "UERM").fitted
    fitted.save(path)
    scores = demo.test.scores
    return bool(np.array_equal(load(path).predict(scores), fitted.predict(scores)))


def _panels(demo: Demo) -> dict[str, dict[str, ReliabilityCurve]]:
    panels: dict[str, dict[str, ReliabilityCurve]] = {}
    for run in demo.runs:
        if not run.estimated:
            panels.setdefault(run.method, {})[_CURVE_LABELS[run.loss]] = run.curve
    return panels


def _functions(demo: Demo, scores: Floats) -> dict[str, Floats]:
    curves = {}
    for name in ("Platt", "Gaussian", "Gamma"):
        curves[name] = demo.find(name, "UERM").fitted.predict(scores)
    curves["Gaussian, naive"] = demo.find("Gaussian", "naive").fitted.predict(scores)
    return curves
