"""The fitted map: a curve of the score plus terms of other columns, in log odds."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib import import_module
from os import PathLike
from typing import Any, overload

import numpy as np

from calibrank._internal import native
from calibrank._internal.arguments import instance, path_of, real
from calibrank._internal.atomic import write_atomic
from calibrank._internal.json import digest_of, encoded, plain
from calibrank._internal.logit import expit, logit
from calibrank._internal.validation import Floats, Numbers, floats, is_tensor
from calibrank.composition import refusal
from calibrank.errors import AssumedRateWarning, DataError
from calibrank.maps.curve import Curve, Ends, Interval, in_blocks, interval_in_blocks, unwrapped
from calibrank.maps.formula import Formula, scores_at
from calibrank.maps.record import FitRecord
from calibrank.maps.targets.numpy import NumpyTarget, to_function
from calibrank.maps.term import Term, Values

FORMAT = "calibrank-map"
VERSION = 2

# Falls of a probability that are due to rounding.
_ROUNDING = 1e-12
# Log odds of a band's end stay finite, whatever a probability rounds to.
_LARGEST_LOG_ODDS = 700.0
# Characters of a saved map up to which it is indented: Python's encoder is then 30 times slower.
_MOST_INDENTED = 2**20


@dataclass(frozen=True, repr=False)
class CalibrationMap(Formula):
    """A fitted, immutable function from scores, and columns if it has terms, to probabilities.

    Its log odds are `curve(score) + term(row) + ...`. `columns`, wherever a method takes them, is a
    mapping or a dataframe with the columns of the terms, by name, one value per score. A column
    that a term needs and that is not there is an error; `without_terms` is the map without them.
    """

    curve: Curve
    record: FitRecord
    terms: tuple[Term, ...] = ()

    def __post_init__(self) -> None:
        inputs = [(term.role, term.columns) for term in self.terms]
        if len(set(inputs)) < len(inputs):
            raise DataError("terms", "be of different columns", inputs)
        if self.terms:
            # It raises an error if the curve has no log odds.
            self.curve.log_odds_on(NumpyTarget(), np.zeros(1))

    @property
    def method(self) -> str:
        """The name of the method that the map was fitted by."""
        return self.record.method

    def without_terms(self) -> CalibrationMap:
        """The map of the score alone: of an average row, where there are terms.

        >>> from calibrank import Level, Platt
        >>> rows = {"country": ["NL", "DE"] * 4}
        >>> model = Platt() + Level("country")
        >>> fitted = model.fit([0.0, 1.0, 2.0, 3.0] * 2, [0, 1, 0, 1] * 2, rows)
        >>> fitted.without_terms().columns
        ()
        """
        if not self.terms:
            return self
        # Fitted by itself, the curve would be another one: it has no recipe.
        record = replace(self.record, method=f"{self.method} without terms", recipe=None)
        return CalibrationMap(self.curve, record)

    def moved(self, shift: float, slope: float = 1.0) -> CalibrationMap:
        """The map whose log odds are `shift + slope * log odds`, at every row."""
        # Engines write numbers as text: those of NumPy have another one.
        shift, slope = float(shift), float(slope)
        terms = tuple(term.moved(shift, slope) for term in self.terms)
        return replace(self, curve=self.curve.moved(shift, slope), terms=terms)

    def with_curve_moved(self, shift: float, slope: float) -> CalibrationMap:
        """The map with its curve at `shift + slope * log odds`, and the band as far around it."""
        curve, record = self.curve.moved(shift, slope), self.record
        if record.sensitivity is not None:
            scores = np.array(record.sensitivity.scores)
            ends = [each.log_odds(scores) for each in (self.curve, curve)]
            before, after = np.clip(ends, -_LARGEST_LOG_ODDS, _LARGEST_LOG_ODDS)
            record = replace(record, sensitivity=record.sensitivity.moved(after - before))
        return replace(self, curve=curve, record=record)

    @overload
    def predict(self, scores: float, columns: Any = None) -> float: ...

    @overload
    def predict(self, scores: Numbers, columns: Any = None) -> Floats: ...

    def predict(self, scores: Numbers, columns: Any = None) -> Floats | float:
        """Probabilities of preference, in the shape and float type of the scores.

        A single score gives a float. `columns` has the columns of the terms, by name.

        A torch tensor gives a tensor on its device, and nothing waits for the result: invalid
        scores (NaN, or beyond 1e30) give NaN there, where arrays raise an error. Float32 tensors on
        a GPU are computed in float32, with a relative error of about 2e-6 (1e-5 where log odds
        reach hundreds); everything else is computed in float64.
        """
        # The most frequent case first: a thousand scores take less time than other checks.
        if type(scores) is np.ndarray and scores.ndim and not self.terms:
            compiled = native.probabilities(scores, self.curve.program)
            if compiled is not None:
                return compiled
        if is_tensor(scores):
            if self.terms:
                raise refusal("terms", "a tensor of scores")
            # Only tensors need torch.
            from calibrank.maps.targets import torch  # noqa: PLC0415  (see above)

            tensor: Any = scores
            probabilities: Any = torch.predict(self, tensor)
            return probabilities
        array = floats("scores", scores)
        if self.terms:
            inputs = self.inputs(columns, array.size)
            return unwrapped(in_blocks(self._probabilities_of, array, array.dtype, inputs))
        compiled = native.probabilities(array, self.curve.program)
        if compiled is None:
            # It finds out which score is invalid.
            compiled = in_blocks(self.curve.probabilities, array, array.dtype)
        return unwrapped(compiled)

    def _probabilities_of(self, scores: Floats, *inputs: Values) -> Floats:
        return expit(self._log_odds_of(scores, *inputs))

    def scalar(self) -> Callable[..., float]:
        """A function of one score that returns the digits of `predict`, in a few microseconds.

        For services that score one pair per request. Build it once, after loading the map: it is
        compiled here, and cannot be pickled. An invalid score raises the error of `predict`. Where
        the map has terms, its second argument is a mapping of their columns to single values, and
        the last digit may differ.

        >>> from calibrank import Sigmoid
        >>> fitted = Sigmoid().fit([0.0, 1.0], [0, 1])
        >>> probability = fitted.scalar()
        >>> probability(0.3) == fitted.predict(0.3)
        True
        """
        return to_function(self)

    @overload
    def log_odds(self, scores: float, columns: Any = None) -> float: ...

    @overload
    def log_odds(self, scores: Numbers, columns: Any = None) -> Floats: ...

    def log_odds(self, scores: Numbers, columns: Any = None) -> Floats | float:
        """Log odds in float64, which stay distinct where probabilities round to 0 or 1."""
        array = floats("scores", scores)
        function = self._log_odds_of if self.terms else self.curve.log_odds
        return unwrapped(in_blocks(function, array, np.float64, self.inputs(columns, array.size)))

    def score_at(self, probability: float, columns: Any = None) -> Interval[Any]:
        """The scores at which the map has this probability: the inverse of `predict`.

        `low` is the raw cutoff: scores from there on have at least this probability. `high` is the
        last score that does not exceed it, which is another one only where the map is flat. They
        are infinite where the flat piece has no end. Where the map has terms, there is one cutoff
        per row of `columns`.

        >>> from calibrank import Isotonic, Platt
        >>> round(Platt().fit([-1.0, 0.0, 1.0, 2.0], [0, 1, 0, 1]).score_at(0.5).low, 6)
        0.5
        >>> Isotonic().fit([0.0, 1.0, 2.0, 3.0, 4.0], [0, 0, 1, 0, 1]).score_at(0.5)
        Interval(low=1.5, high=3.4999999999999996)
        """
        probability = real("probability", probability, "[0, 1]", "Use e.g. 0.5.")
        points = np.array(self.curve.breakpoints)
        places = np.sort(np.concatenate([points, np.nextafter(points, -np.inf)]))
        if len(points) and np.diff(self.curve.probabilities(places)).min() < -_ROUNDING:
            rule, remedy = "increase with the score to have a score_at", "Fit Isotonic or Spline."
            raise DataError("a map", rule, f"a {self.method} map that falls somewhere", remedy)
        inputs = self.inputs(columns)
        width = np.ptp(self.curve.span)
        if not self.terms:
            low, high = scores_at(self.predict, probability, 1, width)
            return Interval(float(low[0]), float(high[0]))

        def probabilities(scores: Floats) -> Floats:
            return in_blocks(self._probabilities_of, scores, np.float64, inputs)

        return Interval(*scores_at(probabilities, probability, len(inputs[0]), width))

    def interval(self, scores: Numbers, columns: Any = None, level: float = 0.95) -> Interval[Any]:
        """Confidence interval of the probability, for the sampling error of the fit alone.

        It includes the errors of the terms. An unknown level may differ from a typical one as much
        as known ones do, and its interval says so. That of a parametric curve allows for a truth of
        another family. Propensities are treated as known: where they were estimated from the same
        positives, intervals are far too narrow. Where the base rate is assumed, a warning says that
        the truth may lie outside.
        """
        found = self.sampling_interval(scores, columns, level)
        caveat = None
        if not self.record.is_base_rate_known:
            caveat = (
                "the base rate of this map is assumed: its intervals are about the log's sampling "
                "error, and the truth may lie far outside. Use anchor on a few hundred labels of "
                "randomly shown pairs."
            )
        elif self.record.level_of is not None:
            caveat = (
                f"the base rate of this map is that of {self.record.level_of}: unless pairs were "
                "shown at random, the truth of all pairs may lie outside its intervals. About 100 "
                "labels of randomly shown pairs would test it (anchor)."
            )
        if caveat is not None:
            warnings.warn(caveat, AssumedRateWarning, stacklevel=2)
        return found

    def sampling_interval(
        self, scores: Numbers, columns: Any = None, level: float = 0.95
    ) -> Interval[Any]:
        """The same as `interval`, without its warning, to show beside the base rate's source."""
        level = real("level", level, "(0, 1)", "Use e.g. 0.95.")
        array = floats("scores", scores)
        inputs = self.inputs(columns, array.size)
        return interval_in_blocks(partial(self._ends, level=level), array, inputs)

    def band(self, scores: Numbers, columns: Any = None) -> Interval[Any]:
        """Sensitivity band: the probability under the alternative propensity models of the fit.

        Unlike `interval`, this is not sampling error: more rows of the same log would not make it
        narrower. Terms move the band as they move the probability.
        """
        sensitivity = self.record.sensitivity
        if sensitivity is None:
            raise DataError(
                "a sensitivity band",
                "come from alternative propensity models",
                f"a {self.method} map that was fitted with one",
                "Fit with fit_with_sensitivity, or with calibrank fit.",
            )
        array = floats("scores", scores)

        def ends(scores: Floats, *inputs: Values) -> Ends:
            # The band is known at a few scores only: elsewhere it contains at least the map itself.
            probabilities = self.curve.probabilities(scores)
            low, high = sensitivity.ends(scores)
            low, high = np.minimum(low, probabilities), np.maximum(high, probabilities)
            if not self.terms:
                return low, high
            added = self._log_odds_of(scores, *inputs) - self._curve_log_odds(scores)
            # Finite also where a step is at 0 or 1.
            log_odds = np.clip(logit([low, high]), -_LARGEST_LOG_ODDS, _LARGEST_LOG_ODDS)
            low, high = expit(log_odds + added)
            return low, high

        return interval_in_blocks(ends, array, self.inputs(columns, array.size))

    def transform(self, frame: Any, *, score: str = "score", to: str = "probability") -> Any:
        """Add a column of probabilities to a dataframe of any kind; a lazy one stays lazy.

        A lazy frame (polars' LazyFrame, duckdb) gets an expression: nothing is computed here, and a
        row that `predict` refuses (a null, NaN, or a number beyond 1e30) gives null. Eager frames
        (pandas, polars, pyarrow) are checked as by `predict`, and a `ScoreShiftWarning` says if the
        scores do not look like those of the fit. A column that exists already is not overwritten:
        that is an error.
        """
        # Only dataframes need narwhals.
        from calibrank.maps.targets.narwhals import transform  # noqa: PLC0415  (see above)

        return transform(self, frame, score, to)

    def plot(self, scores: Numbers | None = None) -> Any:
        """A matplotlib figure of the map with its 95% interval: `calibrank.plots.plot_map`."""
        # By name: plots stand above maps, and need matplotlib.
        return import_module("calibrank.plots").plot_map(self, scores)

    def level_index(self, columns: Any) -> dict[str, Any]:
        """The numbers of levels, by the name of the input of a graph (`to_onnx`, `to_torch`).

        They count the keys of a term from 1 on; 0 is a level that is not known.

        >>> from calibrank import Level, Platt
        >>> rows = {"country": ["NL", "DE"] * 4}
        >>> fitted = (Platt() + Level("country")).fit([0.0, 1.0, 2.0, 3.0] * 2, [0, 1] * 4, rows)
        >>> fitted.level_index({"country": ["NL", "DE", "BE"]})
        {'country': array([2, 1, 0])}
        """
        named = zip(self.input_names(), self.terms, strict=True)
        return {name: term.read(columns) for name, term in named if term.role == "level"}

    def save(self, path: str | PathLike[str]) -> None:
        """Write the map as JSON, atomically: an interrupted write changes no existing file."""
        write_atomic(path_of("path", path), encoded("a saved map", self.to_json()))

    def to_json(self) -> str:
        """The text that `save` writes: the map with its digest."""
        content = self.to_dict()
        document = {**content, "digest": digest_of(content)}
        text = json.dumps(document, allow_nan=False)
        if len(text) <= _MOST_INDENTED:
            text = json.dumps(document, indent=1, allow_nan=False)
        return text + "\n"

    def to_dict(self) -> dict[str, Any]:
        """The map as plain data, as `save` writes it."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "curve": self.curve.content(),
            "terms": [term.content() for term in self.terms],
            "record": plain(self.record),
        }

    def __repr__(self) -> str:
        parts = [self.method, f"{self.record.rows:,} rows", f"{self.record.evidence} evidence"]
        points = self.curve.breakpoints
        if len(points) > 1:
            parts.append(f"scores {points[0]:.4g} to {points[-1]:.4g}")
        parts.append(f"base rate: {self.record.base_rate_source}")
        return f"{type(self).__name__}({', '.join(parts)})"

    @property
    def parameters(self) -> dict[str, float]:
        """The parameters of the curve by name; empty for kinds that have none with a name."""
        return self.curve.parameters

    @property
    def standard_errors(self) -> dict[str, float]:
        """Standard errors of `parameters`."""
        return self.curve.standard_errors

    @property
    def description(self) -> str:
        """The form of the map in a sentence per part."""
        parts = [self.curve.description]
        parts += [f"Changed {term.description}." for term in self.terms]
        return " ".join(parts)

    @cached_property
    def digest(self) -> str:
        """The digest that the saved map has."""
        return digest_of(self.to_dict())


def require_map(fitted: object) -> None:
    """Raise a `DataError` unless an argument is a fitted map."""
    instance("fitted", fitted, CalibrationMap, "Fit one, or read one with calibrank.load.")
