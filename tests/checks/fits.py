"""The laws of fitted maps and of calibrators."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from calibrank._internal.logit import expit
from calibrank._internal.validation import Floats
from calibrank.curves import Calibrator
from calibrank.errors import DataError, FlatMapWarning, ScoreShiftWarning
from calibrank.evidence import Labels, impressions, ips, naive, positive_ips
from calibrank.maps import CalibrationMap, load
from calibrank.summary import Summary
from tests.checks.examples import (
    Example,
    check_laws,
    draw_example,
    ensure,
    ensure_close,
    ensure_each,
    probe_between,
)

_ROUNDING = 1e-12
# Terms of log odds may be 1e5 times as large as their sum, which then has five digits less.
_CANCELLATION = 1e-9


def check_map(
    fitted: CalibrationMap,
    *,
    increasing: bool = True,
    examples: int = 50,
    seed: int | np.random.Generator = 0,
) -> None:
    """Check a fitted map; pass `increasing=False` if it need not be monotone."""
    rng = np.random.default_rng(seed)
    laws = MAP_LAWS | INCREASING_LAWS if increasing else MAP_LAWS
    drawn = [Rows(_draw_scores(fitted, rng), _draw_row(fitted, place)) for place in range(examples)]
    # Rows of unknown levels are drawn on purpose.
    with warnings.catch_warnings(action="ignore", category=ScoreShiftWarning):
        check_laws(fitted, laws, drawn, seed)


class Rows(NamedTuple):
    """Increasing scores that share a row's columns, of which a map without terms has none."""

    scores: Floats
    row: Mapping[str, str | float] = MappingProxyType({})

    def columns(self, rows: int | None = None) -> dict[str, Any]:
        """The columns, of as many rows as there are scores."""
        rows = len(self.scores) if rows is None else rows
        return {name: np.full(rows, value) for name, value in self.row.items()}


def _draw_row(fitted: CalibrationMap, place: int) -> dict[str, str | float]:
    row: dict[str, str | float] = {}
    for term in fitted.terms:
        row |= term.example(place)
    return row


def _draw_scores(fitted: CalibrationMap, rng: np.random.Generator) -> Floats:
    """Increasing scores around the map's own range."""
    low, high = fitted.curve.span
    width = high - low
    regular = probe_between(low, high)
    random = rng.uniform(low - width, high + width, 20)
    return np.sort(np.concatenate([regular, random]))


def _probabilities_in_range(fitted: CalibrationMap, rows: Rows) -> None:
    scores = rows.scores
    probabilities = fitted.predict(scores, rows.columns())
    in_range = (probabilities >= 0) & (probabilities <= 1)
    ensure_each(in_range, scores, probabilities, "a probability must lie in [0, 1]")


def _shape_and_type_kept(fitted: CalibrationMap, rows: Rows) -> None:
    scores = rows.scores
    for dtype in (np.float32, np.float64):
        matrix = scores.astype(dtype).reshape(1, -1)
        result = fitted.predict(matrix, rows.columns())
        same_shape = result.shape == matrix.shape
        ensure(same_shape, f"got shape {result.shape} for scores of shape {matrix.shape}.")
        same_type = result.dtype == matrix.dtype
        ensure(same_type, f"got {result.dtype} probabilities for {matrix.dtype} scores.")


def _scalar_gives_scalar(fitted: CalibrationMap, rows: Rows) -> None:
    scores = rows.scores
    some = scores[:1]
    result = fitted.predict(float(some[0]), rows.row)
    ensure(isinstance(result, float), f"got {result!r} for the score {some[0]}.")
    scalar = np.array([result])
    expected = fitted.predict(some, rows.columns(1))
    ensure_close(scalar, expected, some, "scalar and array predictions", _ROUNDING)


def _scores_do_not_interact(fitted: CalibrationMap, rows: Rows) -> None:
    scores = rows.scores
    together = fitted.predict(scores, rows.columns())
    backwards = fitted.predict(scores[::-1], rows.columns())[::-1]
    ensure_close(together, backwards, scores, "predictions in either order", _ROUNDING)
    # Inner scores only, so that the range of the scores differs as well.
    inner = slice(len(scores) // 3, 2 * len(scores) // 3)
    alone = fitted.predict(scores[inner], rows.columns(len(scores[inner])))
    ensure_close(together[inner], alone, scores[inner], "predictions of some scores", _ROUNDING)


def _log_odds_agree(fitted: CalibrationMap, rows: Rows) -> None:
    scores = rows.scores
    probabilities = fitted.predict(scores, rows.columns())
    from_log_odds = expit(fitted.log_odds(scores, rows.columns()))
    ensure_close(probabilities, from_log_odds, scores, "predict and log_odds", _CANCELLATION)


def _interval_contains_estimate(fitted: CalibrationMap, rows: Rows) -> None:
    scores = rows.scores
    probabilities = fitted.predict(scores, rows.columns())
    narrow = fitted.sampling_interval(scores, rows.columns(), 0.5)
    wide = fitted.sampling_interval(scores, rows.columns(), 0.99)
    below = narrow.low <= probabilities + _ROUNDING
    ensure_each(below, scores, narrow.low, "the lower end must not exceed the estimate")
    above = narrow.high >= probabilities - _ROUNDING
    ensure_each(above, scores, narrow.high, "the upper end must not be below the estimate")
    rule = "a 99% interval must contain the 50% interval"
    ensure_each(wide.low <= narrow.low + _ROUNDING, scores, wide.low, rule)
    ensure_each(wide.high >= narrow.high - _ROUNDING, scores, wide.high, rule)


def _loaded_equals_saved(fitted: CalibrationMap, rows: Rows) -> None:
    scores = rows.scores
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "map.json"
        fitted.save(path)
        try:
            loaded = load(path)
        except DataError as error:
            # `load` knows the kinds of maps of calibrank only.
            own_kind = not type(fitted).__module__.startswith("calibrank.")
            ensure(own_kind, f"the saved map must be loadable, got: {error}")
            return
    ensure(loaded == fitted, "the loaded map must be equal to the saved one.")
    expected = fitted.predict(scores, rows.columns())
    ensure_close(loaded.predict(scores, rows.columns()), expected, scores, "predictions", 0)
    interval = fitted.sampling_interval(scores, rows.columns())
    loaded_interval = loaded.sampling_interval(scores, rows.columns())
    ensure_close(loaded_interval.low, interval.low, scores, "lower ends", 0)
    ensure_close(loaded_interval.high, interval.high, scores, "upper ends", 0)


def _never_decreases(fitted: CalibrationMap, rows: Rows) -> None:
    scores = rows.scores
    probabilities = fitted.predict(scores, rows.columns())
    # The exponential of the C loops is right to one unit in the last place.
    rises = np.diff(probabilities) >= -np.finfo(np.float64).eps
    rule = "a higher score must not get a lower probability"
    ensure_each(rises, scores[1:], probabilities[1:], rule)


MAP_LAWS: dict[str, Callable[[CalibrationMap, Rows], None]] = {
    "probabilities lie in [0, 1]": _probabilities_in_range,
    "probabilities have the shape and float type of the scores": _shape_and_type_kept,
    "a scalar score gives a scalar probability": _scalar_gives_scalar,
    "the probability of a score does not depend on other scores": _scores_do_not_interact,
    "predict is the sigmoid of log_odds": _log_odds_agree,
    "intervals contain the estimate and grow with the level": _interval_contains_estimate,
    "a saved map is loaded unchanged": _loaded_equals_saved,
}
"""Laws of every map, by statement: functions of the map and rows of increasing scores."""

INCREASING_LAWS: dict[str, Callable[[CalibrationMap, Rows], None]] = {
    "a higher score never gets a lower probability": _never_decreases
}
"""Laws of maps whose calibrator declares `meets.increasing`."""


# Fits of equal data in another order differ by rounding, amplified by the solver.
_FIT_TOLERANCE = 1e-7
_SHARDS = 3

Law = Callable[[Calibrator, Example], None]
MapLaw = Callable[[CalibrationMap, Rows], None]


def check_calibrator(
    calibrator: Calibrator, *, examples: int = 50, seed: int | np.random.Generator = 0
) -> None:
    """Check a calibrator, and the maps that it fits."""
    rng = np.random.default_rng(seed)
    drawn = [draw_example(rng) for _ in range(examples)]
    check_laws(calibrator, CALIBRATOR_LAWS, drawn, seed)


def quiet_fit(calibrator: Calibrator, example: Example, labels: Labels) -> CalibrationMap:
    """Fit without the warning that a map is flat: random examples may well call for one."""
    with warnings.catch_warnings(action="ignore", category=FlatMapWarning):
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
    with warnings.catch_warnings(action="ignore", category=FlatMapWarning):
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
