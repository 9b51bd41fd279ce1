"""The laws of calibrators."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial

import numpy as np

from calibrank.curves import Calibrator
from calibrank.errors import FlatMapWarning
from calibrank.evidence import Labels, impressions, ips, naive, positive_ips
from calibrank.maps import CalibrationMap
from calibrank.summary import Summary
from calibrank.testing._checks import check_laws, ensure, ensure_close
from calibrank.testing.examples import Example, draw_example
from calibrank.testing.maps import INCREASING_LAWS, MAP_LAWS, Rows

# Fits of equal data in another order differ by rounding, amplified by the solver.
_FIT_TOLERANCE = 1e-7
_SHARDS = 3

Law = Callable[[Calibrator, Example], None]
MapLaw = Callable[[CalibrationMap, Rows], None]


def check_calibrator(
    calibrator: Calibrator, *, examples: int = 50, seed: int | np.random.Generator = 0
) -> None:
    """Check a calibrator of your own, and the maps that it fits.

    >>> from calibrank import Histogram
    >>> check_calibrator(Histogram(bins=5), examples=5)
    """
    rng = np.random.default_rng(seed)
    drawn = [draw_example(rng) for _ in range(examples)]
    check_laws(calibrator, CALIBRATOR_LAWS, drawn, seed)


def quiet_fit(calibrator: Calibrator, example: Example, labels: Labels) -> CalibrationMap:
    """Fit without the warning that a map is flat: random examples may well call for one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FlatMapWarning)
        return calibrator.fit(example.scores, labels)


def _ips_fit(calibrator: Calibrator, example: Example) -> CalibrationMap:
    return quiet_fit(calibrator, example, ips(example.labels, example.propensity))


def _ensure_same(
    first: CalibrationMap,
    second: CalibrationMap,
    example: Example,
    what: str,
    tolerance: float = _FIT_TOLERANCE,
) -> None:
    scores = example.probe()
    ensure_close(first.predict(scores), second.predict(scores), scores, what, tolerance)


def _interface(calibrator: Calibrator, example: Example) -> None:
    name = calibrator.name
    ensure(isinstance(name, str), f"name must be a string, got {name!r}.")
    for flag in ("any_score", "increasing", "expressive"):
        value = getattr(calibrator.meets, flag)
        ensure(isinstance(value, bool), f"meets.{flag} must be a bool, got {value!r}.")
    fitted = _ips_fit(calibrator, example)
    ensure(isinstance(fitted, CalibrationMap), f"fit must return a map, got {fitted!r}.")


def _weight_is_repetition(calibrator: Calibrator, example: Example) -> None:
    weights = 1 + np.arange(len(example.scores)) % 3
    weighted = ips(example.labels, example.propensity, weights=weights)
    repeated = example.take(np.repeat(np.arange(len(weights)), weights))
    first = quiet_fit(calibrator, example, weighted)
    second = _ips_fit(calibrator, repeated)
    _ensure_same(first, second, example, "predictions of weighted and repeated rows")


def _weight_0_is_absence(calibrator: Calibrator, example: Example) -> None:
    kept = np.arange(len(example.scores)) % 5 != 4
    weighted = naive(example.labels, weights=kept.astype(np.float64))
    present = example.take(kept)
    first = quiet_fit(calibrator, example, weighted)
    second = quiet_fit(calibrator, present, naive(present.labels))
    _ensure_same(first, second, example, "predictions with weight 0 and without the rows")


def _order_is_irrelevant(calibrator: Calibrator, example: Example) -> None:
    order = np.random.default_rng(0).permutation(len(example.scores))
    shuffled = example.take(order)
    first = _ips_fit(calibrator, example)
    second = _ips_fit(calibrator, shuffled)
    _ensure_same(first, second, example, "predictions of rows in either order")


def _fit_is_repeatable(calibrator: Calibrator, example: Example) -> None:
    first = _ips_fit(calibrator, example)
    second = _ips_fit(calibrator, example)
    _ensure_same(first, second, example, "predictions of two fits on the same rows", 0)


def _full_exposure_is_naive(calibrator: Calibrator, example: Example) -> None:
    full = np.ones(len(example.labels))
    expected = quiet_fit(calibrator, example, naive(example.labels))
    for weighting in (ips, positive_ips, impressions):
        fitted = quiet_fit(calibrator, example, weighting(example.labels, full))
        what = f"predictions of naive and {weighting.__name__} evidence at propensity 1"
        _ensure_same(fitted, expected, example, what, 1e-12)


def _merging_is_exact(calibrator: Calibrator, example: Example) -> None:
    expected = _ips_fit(calibrator, example)
    shards = [example.take(slice(start, None, _SHARDS)) for start in range(_SHARDS)]
    summaries = []
    for shard in shards:
        evidence = ips(shard.labels, shard.propensity)
        summaries.append(Summary.of(shard.scores, evidence))
    first, second, third = summaries
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FlatMapWarning)
        for merged in (first + second + third, third + (second + first)):
            fitted = calibrator.fit_summary(merged)
            _ensure_same(fitted, expected, example, "predictions of merged summaries")


def _map_law(law: MapLaw, calibrator: Calibrator, example: Example) -> None:
    law(_ips_fit(calibrator, example), Rows(example.probe()))


def _increasing_law(law: MapLaw, calibrator: Calibrator, example: Example) -> None:
    fitted = _ips_fit(calibrator, example)
    if calibrator.meets.increasing:
        law(fitted, Rows(example.probe()))


CALIBRATOR_LAWS: dict[str, Law] = {
    "it has a name, declares its desiderata, and fit returns a map": _interface,
    "fitting twice gives the same map": _fit_is_repeatable,
    "permuting rows changes nothing": _order_is_irrelevant,
    "weight k equals k repeated rows": _weight_is_repetition,
    "weight 0 equals an absent row": _weight_0_is_absence,
    "full exposure equals naive evidence": _full_exposure_is_naive,
    "pooling and merging summaries changes nothing": _merging_is_exact,
}
"""Laws of every calibrator, by statement: functions of the calibrator and an `Example`."""

for _statement, _law in MAP_LAWS.items():
    CALIBRATOR_LAWS[_statement] = partial(_map_law, _law)
for _statement, _law in INCREASING_LAWS.items():
    CALIBRATOR_LAWS[_statement] = partial(_increasing_law, _law)
