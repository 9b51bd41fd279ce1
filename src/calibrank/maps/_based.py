"""What maps of scores and further columns share: a base map of scores alone."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from calibrank._internal import native
from calibrank._internal.json import Fields
from calibrank._internal.logit import expit
from calibrank._internal.validation import Floats, Numbers, floats, is_tensor, require_scores
from calibrank.errors import DataError
from calibrank.maps._blocks import Ends
from calibrank.maps.calibration_map import CalibrationMap
from calibrank.maps.record import FitRecord
from calibrank.maps.targets.numpy import NumpyTarget
from calibrank.maps.targets.target import Target

_BASE_FIELDS = ("kind", "method", "map")


class BasedMap(CalibrationMap):
    """A map that changes the log odds of its `base` by further columns of a row.

    Without these columns, the methods of a map are those of `base`.
    """

    base: CalibrationMap

    @property
    def breakpoints(self) -> tuple[float, ...]:
        return self.base.breakpoints

    @property
    def span(self) -> tuple[float, float]:
        return self.base.span

    def on(self, target: Target, score: Any) -> Any:
        return self.base.on(target, score)

    def where_valid(self, target: Target, score: Any, segment: Any = None) -> Any:
        if segment is None:
            return self.base.where_valid(target, score)

        def formula(valid: Any) -> Any:
            return target.sigmoid(self._changed_on(target, valid, segment))

        return target.where_valid(score, formula)

    def predict_rows(self, scores: Numbers, column: Callable[[str], Any]) -> Floats:
        names = (*self.segment_columns, *self.feature_columns)
        return self._predict_with(scores, {name: column(name) for name in names}, "columns")

    @abstractmethod
    def _changed_on(self, target: Target, score: Any, columns: Any) -> Any:
        """The log odds with the further columns, as an expression of the target."""

    @abstractmethod
    def _log_odds_with(self, scores: Floats, columns: Any) -> Floats:
        """Log odds in the shape of the scores; `columns` is a mapping or a dataframe."""

    def _predict_with(self, scores: Numbers, columns: Any, what: str, remedy: str = "") -> Any:
        """Probabilities in the shape and type of the scores; `what` names the columns in errors."""
        if is_tensor(scores):
            raise DataError(
                f"scores must be an array where {what} are given, got a tensor. "
                f"Use export.to_torch{remedy}."
            )
        array = floats("scores", scores)
        probabilities = self._probabilities_with(array, columns)
        if array.ndim == 0:
            return float(probabilities)
        return probabilities.astype(array.dtype, copy=False)

    def _probabilities_with(self, scores: Floats, columns: Any) -> Floats:
        probabilities: Floats = expit(self._log_odds_with(scores, columns))
        return probabilities

    def _base_log_odds(self, scores: Floats) -> Floats:
        exact: Floats = scores.astype(np.float64)
        compiled = native.probabilities(exact, self.base._log_odds_program)
        if compiled is not None:
            return compiled
        require_scores(scores)
        log_odds: Floats = self.base.log_odds_on(NumpyTarget(), exact)
        return log_odds

    def _interval_ends(self, scores: Floats, level: float) -> Ends:
        low, high = self.base.interval(scores, level)
        return low, high

    def _share_record(self) -> None:
        """Give the base the record of this map: one record describes the fit of both."""
        base = replace(self.base, record=self.record)  # type: ignore[type-var]  # a dataclass
        object.__setattr__(self, "base", base)

    def _base_content(self) -> dict[str, Any]:
        return self._content_of(self.base)

    @staticmethod
    def _content_of(part: CalibrationMap) -> dict[str, Any]:
        content = part.to_dict()
        return {name: content[name] for name in _BASE_FIELDS}


def read_base(fields: Fields, record: FitRecord) -> CalibrationMap:
    """Rebuild the base of a saved map."""
    return read_map_in(fields, "base", record)


def read_map_in(fields: Fields, name: str, record: FitRecord) -> CalibrationMap:
    """Rebuild a map that is part of a saved one."""
    # Knows the kinds of maps, some of which build on this module.
    from calibrank.maps.format import read_map  # noqa: PLC0415  (see above)

    base = fields.child(name)
    base.only(*_BASE_FIELDS)
    return read_map(base, record)
