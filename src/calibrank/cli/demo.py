"""`calibrank demo`: every method on synthetic data whose true preferences are known."""

import warnings
from collections.abc import Iterator
from io import BytesIO
from typing import NamedTuple

from rich.text import Text

from calibrank._internal.atomic import write_all_atomic
from calibrank.cli import console
from calibrank.cli.parse import Given
from calibrank.curves import Calibrator, Gaussian
from calibrank.data.score_world import World, make_world
from calibrank.errors import FlatMapWarning
from calibrank.evidence import Evidence, ips, naive
from calibrank.maps import CalibrationMap
from calibrank.metrics import ReliabilityCurve, reliability
from calibrank.plots import reliability_grid
from calibrank.propensity import Popularity
from calibrank.registry import CALIBRATORS, METRICS

# Calibration first, as in the paper; the last one shows the base rate alone.
_SHOWN = ("ECE", "MCE", "LogLoss", "Brier", "CalibrationInTheLarge")
_NAIVE, _WEIGHTED, _ESTIMATED = "naive", "UERM", "popularity"
_CURVES = {
    "none": "not calibrated",
    _NAIVE: "naive log loss",
    _WEIGHTED: "UERM (inverse propensity)",
}


class _Run(NamedTuple):
    """One method fitted to labels that are used in one way, and evaluated against the truth."""

    method: str
    labels: str
    fitted: CalibrationMap
    values: dict[str, float]
    curve: ReliabilityCurve


def demo(given: Given) -> None:
    """Compare every calibration method on synthetic data with known preferences."""
    console.require_output(given.out, is_folder=True)
    with console.screen.status("Generating data and fitting every method ..."):
        world = make_world(given.pairs, seed=given.seed)
        test = world.redraw(given.seed + 1)
        runs = [_evaluate(*each, world, test) for each in _settings(world)]
    console.show(
        f"\n{len(world):,} synthetic user-item pairs. Users would like [bold]{world.base_rate:.1%}"
        f"[/] of them, but the log records only [bold]{world.labels.mean():.1%}[/] as positive, "
        "because most pairs were never shown.\nEach method is fitted to the scores and that log, "
        "and evaluated against the true preferences of new pairs. Labels are used in three ways:\n"
        "  naive       as the log records them\n"
        "  UERM        weighted by the true propensities: unbiased empirical risk\n"
        "              minimization\n"
        "  popularity  weighted by propensities estimated from item popularity\n"
    )
    _print_runs(runs)
    found = {each.labels: each for each in runs if each.method == Gaussian().name}
    errors = {labels: each.values["ECE"] for labels, each in found.items()}
    ratio = found[_ESTIMATED].values["CalibrationInTheLarge"]
    console.show(
        f"\nGaussian calibration: ECE {errors[_NAIVE]:.4f} naive, [bold]{errors[_WEIGHTED]:.4f}[/] "
        f"with UERM, {errors[_ESTIMATED]:.4f} with propensities from popularity. These leave the "
        f"base rate unknown: mean predicted over mean observed is {ratio:.2f}.\n"
        "Labels of a few hundred randomly shown pairs would determine it.\n"
    )
    panels: dict[str, dict[str, ReliabilityCurve]] = {}
    for each in runs:
        if each.labels in _CURVES:
            panels.setdefault(each.method, {})[_CURVES[each.labels]] = each.curve
    title = "Is 30% really 30%? Predicted probability against the rate liked, diagonal: calibrated"
    with console.screen.status("Drawing the figure ..."):
        figure = BytesIO()
        reliability_grid(panels, title).savefig(figure, dpi=150, format="png")
    picture, saved = given.out / "reliability.png", given.out / "map.json"
    write_all_atomic({picture: figure.getvalue(), saved: found[_WEIGHTED].fitted.to_json()})
    console.say_saved(picture, "Figure:")
    console.say_saved(saved, "Map:")


def _settings(world: World) -> Iterator[tuple[Calibrator, str, Evidence]]:
    """Every method with labels as they are and weighted by true propensities.

    Gaussian also with propensities estimated from popularity, as most logs require.
    """
    unweighted = naive(world.labels)
    weighted = ips(world.labels, world.propensity)
    for method in CALIBRATORS.values():
        yield method, _NAIVE if method.learns else "none", unweighted
        if method.learns:
            yield method, _WEIGHTED, weighted
    popularity = Popularity().fit(world.interactions())
    estimated = popularity.predict(world.users, world.items)
    yield Gaussian(), _ESTIMATED, ips(world.labels, estimated)


def _evaluate(
    method: Calibrator, labels: str, evidence: Evidence, world: World, test: World
) -> _Run:
    # Temperature cannot fit ranking scores; the result table shows it.
    with warnings.catch_warnings(action="ignore", category=FlatMapWarning):
        fitted = method.fit(world.scores, evidence)
    probabilities = fitted.predict(test.scores)
    values = {name: METRICS[name](probabilities, test.preferences) for name in _SHOWN}
    return _Run(method.name, labels, fitted, values, reliability(probabilities, test.preferences))


def _print_runs(runs: list[_Run]) -> None:
    """The metrics of all runs, the best of those with known propensities in bold."""
    known = [each for each in runs if each.labels != _ESTIMATED]
    rows: list[list[object]] = [[each.method, each.labels] for each in runs]
    for name in _SHOWN:
        loss = METRICS[name].better.loss
        best = min(known, key=lambda each: loss(each.values[name]))
        for row, each in zip(rows, runs, strict=True):
            row.append(Text(f"{each.values[name]:.4f}", "bold green" if each is best else ""))
    title = "Against the true preferences (lower is better; mean pred/obs: closer to 1)"
    console.print_table(("method", "labels", *_SHOWN[:-1], "pred/obs"), rows, title, numbers=True)
