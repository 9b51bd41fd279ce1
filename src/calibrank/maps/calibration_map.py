"""The interface of every fitted map: predictions, intervals, saving, and a formula for targets."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict
from functools import cached_property
from os import PathLike
from typing import Any, ClassVar, Self, overload

import numpy as np

from calibrank._internal import native
from calibrank._internal.arguments import instance, path_of, real
from calibrank._internal.atomic import write_atomic
from calibrank._internal.json import Fields, digest_of
from calibrank._internal.logit import logit
from calibrank._internal.validation import (
    LARGEST_SCORE,
    Floats,
    Numbers,
    floats,
    is_tensor,
)
from calibrank.errors import DataError
from calibrank.maps._blocks import Ends, Interval, in_blocks, interval_in_blocks, unwrapped
from calibrank.maps._card import card
from calibrank.maps._program import of_log_odds
from calibrank.maps.describe import summarize_base_rate
from calibrank.maps.record import FitRecord
from calibrank.maps.targets.numpy import NumpyTarget
from calibrank.maps.targets.target import Target

FORMAT = "calibrank-map"
VERSION = 1

# Points of the curve that a notebook shows.
_CARD_POINTS = 61
# Characters of a saved map up to which it is indented: Python's encoder is then 30 times slower.
_MOST_INDENTED = 2**20


class CalibrationMap(ABC):
    """A fitted, immutable function from scores to probabilities.

    A kind of map states its formula once, in `on`; every engine computes it from there.
    """

    kind: ClassVar[str]
    number_role: ClassVar[str] = "feature"  # whose rule the columns of numbers keep
    method: str
    record: FitRecord

    @overload
    def predict(self, scores: float) -> float: ...

    @overload
    def predict(self, scores: Numbers) -> Floats: ...

    def predict(self, scores: Numbers) -> Floats | float:
        """Probabilities of preference, in the shape and float type of the scores.

        A single score gives a float.

        A torch tensor gives a tensor on its device, and nothing waits for the result: invalid
        scores (NaN, or beyond 1e30) give NaN there, where arrays raise an error. Float32 tensors on
        a GPU are computed in float32, with a relative error of about 2e-6 (1e-5 where log odds
        reach hundreds); everything else is computed in float64.
        """
        # The most frequent case first: a thousand scores take less time than other checks.
        if type(scores) is np.ndarray and scores.ndim:
            compiled = native.probabilities(scores, self._program)
            if compiled is not None:
                return compiled
        if is_tensor(scores):
            return self._predict_tensor(scores)
        return unwrapped(self._predict_array(floats("scores", scores)))

    def predict_rows(self, scores: Numbers, column: Callable[[str], Any]) -> Floats:
        """Probabilities of the rows of a table; `column` returns a column by its name."""
        return self.predict(scores)

    def scalar(self) -> Callable[[float], float]:
        """A function of one float that returns the digits of `predict`, in a few microseconds.

        For services that score one pair per request. Build it once, after loading the map: it is
        compiled here, and cannot be pickled. An invalid score raises the error of `predict`.

        >>> from calibrank import Sigmoid
        >>> fitted = Sigmoid().fit([0.0, 1.0], [0, 1])
        >>> probability = fitted.scalar()
        >>> probability(0.3) == fitted.predict(0.3)
        True
        """
        from calibrank.maps.targets import python  # noqa: PLC0415  (only services need it)

        checked = python.to_function(self)
        program = self._program
        is_native = native.READY and native.MAPS_READY and bool(program)
        compiled = native.scalar_probability() if is_native else None

        def probability(score: float) -> float:
            try:
                # NumPy would convert the bounds to the type of its small floats: 1e30 overflows.
                if not isinstance(score, float) and isinstance(score, np.floating):
                    score = float(score)
                if compiled is not None and -LARGEST_SCORE <= score <= LARGEST_SCORE:
                    return compiled(score, program)
                return checked(score)
            except (TypeError, ValueError, ArithmeticError):
                python.check_score(score)
                raise

        return probability

    @overload
    def log_odds(self, scores: float) -> float: ...

    @overload
    def log_odds(self, scores: Numbers) -> Floats: ...

    def log_odds(self, scores: Numbers) -> Floats | float:
        """Log odds in float64, which stay distinct where probabilities round to 0 or 1."""
        array = floats("scores", scores)
        return unwrapped(in_blocks(self._log_odds, array, np.dtype(np.float64)))

    @overload
    def interval(
        self,
        scores: float,
        level: float = 0.95,
    ) -> Interval[float]: ...

    @overload
    def interval(
        self,
        scores: Numbers,
        level: float = 0.95,
    ) -> Interval[Floats]: ...

    def interval(
        self,
        scores: Numbers,
        level: float = 0.95,
    ) -> Interval[Floats] | Interval[float]:
        """Confidence interval of the probability, for the sampling error of the fit alone."""
        level = real("level", level, "(0, 1)", "Use e.g. 0.95.")

        def ends(block: Floats) -> Ends:
            return self._interval_ends(block, level)

        return interval_in_blocks(ends, floats("scores", scores))

    @overload
    def band(self, scores: float) -> Interval[float]: ...

    @overload
    def band(self, scores: Numbers) -> Interval[Floats]: ...

    def band(self, scores: Numbers) -> Interval[Floats] | Interval[float]:
        """Sensitivity band: the probability under the alternative propensity models of the fit.

        Unlike `interval`, this is not sampling error: more rows of the same log would not make it
        narrower.
        """
        sensitivity = self.record.sensitivity
        if sensitivity is None:
            raise DataError(
                "a sensitivity band must come from alternative propensity models, "
                f"got a {self.method} map that was fitted with one. "
                "Fit with fit_with_sensitivity, or with calibrank fit."
            )

        def ends(block: Floats) -> Ends:
            # The band is known at a few scores only: elsewhere it contains at least the map itself.
            probabilities = self._probabilities(block)
            low, high = sensitivity.ends(block)
            return np.minimum(low, probabilities), np.maximum(high, probabilities)

        return interval_in_blocks(ends, floats("scores", scores))

    def transform(
        self,
        frame: Any,
        *,
        score: str = "score",
        to: str = "probability",
    ) -> Any:
        """Add a column of probabilities to a dataframe of any kind; a lazy one stays lazy.

        A lazy frame (polars' LazyFrame, duckdb) gets an expression: nothing is computed here, and a
        score that `predict` refuses (null, NaN, or beyond 1e30) gives null. Eager frames (pandas,
        polars, pyarrow) are checked as by `predict`, and a `ScoreShiftWarning` says if the scores
        do not look like those of the fit. A column that exists already is not overwritten: that is
        an error.
        """
        # Only dataframes need narwhals.
        from calibrank.maps.targets.narwhals import transform  # noqa: PLC0415  (see above)

        return transform(self, frame, score, to)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the map as JSON, atomically: an interrupted write changes no existing file."""
        write_atomic(path_of("path", path), self.to_json())

    def to_json(self) -> str:
        """The text that `save` writes: the map with its digest."""
        content = self.to_dict()
        document = {**content, "digest": digest_of(content)}
        text = json.dumps(document, allow_nan=False)
        if len(text) <= _MOST_INDENTED:
            text = json.dumps(document, indent=1, allow_nan=False)
        return text + "\n"

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read a map that `save` wrote; called on one kind of map, it must be of that kind."""
        # Knows the kinds of maps, which build on this class.
        from calibrank.maps.format import load  # noqa: PLC0415  (see above)

        fitted = load(path)
        if not isinstance(fitted, cls):
            raise DataError(
                f"{path} must be a {cls.kind} map, got {fitted.kind}. Use CalibrationMap.load."
            )
        return fitted

    def to_dict(self) -> dict[str, Any]:
        """The map as plain data, as `save` writes it."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "kind": self.kind,
            "method": self.method,
            "map": self._content(),
            "record": _with_lists(asdict(self.record)),
        }

    def __repr__(self) -> str:
        parts = [self.method, f"{self.record.rows:,} rows", f"{self.record.evidence} evidence"]
        points = self.breakpoints
        if len(points) > 1:
            parts.append(f"scores {points[0]:.4g} to {points[-1]:.4g}")
        parts.append(summarize_base_rate(self.record))
        return f"{type(self).__name__}({', '.join(parts)})"

    def _repr_html_(self) -> str:
        """What a notebook shows: method, parameters, source of the base rate, and curve."""
        return card(self, np.linspace(*self.span, _CARD_POINTS))

    @property
    def parameters(self) -> dict[str, float]:
        """The parameters of the map by name; empty for kinds that have none with a name."""
        return {}

    @property
    def standard_errors(self) -> dict[str, float]:
        """Standard errors of `parameters`."""
        return {}

    @property
    @abstractmethod
    def description(self) -> str:
        """The form of the map in one sentence."""

    @property
    @abstractmethod
    def breakpoints(self) -> tuple[float, ...]:
        """Scores at which the formula changes its form, in increasing order; there may be none."""

    @property
    def span(self) -> tuple[float, float]:
        """The range of scores over which a plot shows the map."""
        return self.breakpoints[0], self.breakpoints[-1]

    @property
    def largest_term(self) -> float:
        """The largest magnitude among the terms of the formula, to which rounding is relative."""
        return 1.0

    def float32_problem(self) -> str | None:
        """Why the formula would be inaccurate in float32, as a sentence; None if it would not."""
        return None

    @abstractmethod
    def on(self, target: Target, score: Any) -> Any:
        """The probability as an expression of the target; `score` is one as well."""

    @property
    def segment_columns(self) -> tuple[str, ...]:
        """Columns whose values change the map; none, except for a `GroupedMap`."""
        return ()

    @property
    def feature_columns(self) -> tuple[str, ...]:
        """Columns of features that change the map; none, except for an `AdditiveMap`."""
        return ()

    @property
    def categories(self) -> dict[str, tuple[str, ...]]:
        """The known categories of each feature that is a category, as text."""
        return {}

    @property
    def category_columns(self) -> tuple[str, ...]:
        """Those of the features that are categories, as text."""
        return tuple(self.categories)

    @property
    def text_columns(self) -> tuple[str, ...]:
        """Columns that are read as text: segments and categories."""
        return (*self.segment_columns, *self.category_columns)

    @property
    def number_columns(self) -> tuple[str, ...]:
        """Features that are numbers."""
        texts = self.category_columns
        return tuple(name for name in self.feature_columns if name not in texts)

    def log_odds_on(self, target: Target, score: Any) -> Any:
        """The log odds as an expression of the target; not every kind of map has them."""
        raise DataError(
            f"the base of a map by segment must have log odds, got a {self.kind} map. "
            "Use another method, such as Gaussian()."
        )

    def where_valid(self, target: Target, score: Any, segment: Any = None) -> Any:
        """As `on`; null or NaN (which of the two depends on the target) for invalid scores.

        `segment` is what the target's `by_segment` takes where there are segment columns, and one
        expression per column where there are feature columns.
        """
        return target.where_valid(score, lambda valid: self.on(target, valid))

    @abstractmethod
    def _interval_ends(self, scores: Floats, level: float) -> Ends:
        """Ends of the confidence interval at each score."""

    @abstractmethod
    def _content(self) -> dict[str, Any]:
        """The numbers of the formula, as JSON."""

    @classmethod
    @abstractmethod
    def read(cls, method: str, fields: Fields, record: FitRecord) -> Self:
        """Rebuild a saved map from what `_content` gave."""

    def _probabilities(self, scores: Floats) -> Floats:
        probabilities: Floats = self.on(NumpyTarget(), scores)
        return probabilities

    def _log_odds(self, scores: Floats) -> Floats:
        log_odds: Floats = logit(self._probabilities(scores))
        return log_odds

    def _predict_array(self, scores: Floats) -> Floats:
        compiled = native.probabilities(scores, self._program)
        if compiled is not None:
            return compiled
        # It finds out which score is invalid.
        return in_blocks(self._probabilities, scores, scores.dtype)

    @cached_property
    def _program(self) -> bytes:
        """The map as the C loops read it, packed once."""
        # A subclass of a kind of map may have another formula.
        return self._compile() if "_compile" in vars(type(self)) else b""

    @cached_property
    def _log_odds_program(self) -> bytes:
        """As `_program`, for the log odds."""
        return of_log_odds(self._program)

    def _compile(self) -> bytes:
        """The map as `_program.py` packs it; empty if there is no loop for it."""
        return b""

    def _predict_tensor(self, scores: Any) -> Any:
        # Only tensors need torch.
        from calibrank.maps.targets.tensors import predict  # noqa: PLC0415  (see above)

        return predict(self, scores)


def require_map(fitted: object) -> None:
    """Raise a `DataError` unless an argument is a fitted map."""
    instance("fitted", fitted, CalibrationMap, "Fit one, or read one with calibrank.load.")


def _with_lists(value: Any) -> Any:
    """Tuples as lists, at every depth, as JSON reads them back: the digest depends on neither."""
    if isinstance(value, dict):
        return {name: _with_lists(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_with_lists(inner) for inner in value]
    return value
