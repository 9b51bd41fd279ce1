"""The laws of fitted maps."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from calibrank._internal.logit import expit
from calibrank._internal.validation import Floats
from calibrank.errors import DataError, ScoreShiftWarning
from calibrank.maps import CalibrationMap, load
from calibrank.testing._checks import check_laws, ensure, ensure_close, ensure_each
from calibrank.testing.examples import probe_between

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
    """Check a fitted map of your own; pass `increasing=False` if it need not be monotone.

    >>> from calibrank import Isotonic
    >>> check_map(Isotonic().fit([1.0, 2.0, 3.0, 4.0], [0, 1, 0, 1]), examples=5)
    """
    rng = np.random.default_rng(seed)
    laws = MAP_LAWS | INCREASING_LAWS if increasing else MAP_LAWS
    drawn = [Rows(_draw_scores(fitted, rng), _draw_row(fitted, place)) for place in range(examples)]
    with warnings.catch_warnings():
        # Rows of unknown levels are drawn on purpose.
        warnings.simplefilter("ignore", ScoreShiftWarning)
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
    low, high = fitted.span
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
    rises = np.diff(probabilities) >= 0
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
