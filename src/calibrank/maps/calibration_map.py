"""What every fitted map can do, whatever its shape."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from calibrank._atomic import write_atomic
from calibrank._json import digest_of
from calibrank._validation import Floats, Numbers, floats, is_tensor, require_scores
from calibrank.errors import DataError
from calibrank.maps._card import card
from calibrank.maps.record import FitRecord
from calibrank.maps.targets.narwhals import transform

if TYPE_CHECKING:
    import narwhals as nw

FORMAT = "calibrank-map"
VERSION = 1
_BLOCK = 2**15  # rows at a time: temporaries stay in cache, whatever the table's size


class Interval(NamedTuple):
    """Lower and upper ends, one a score."""

    low: Floats
    high: Floats


class CalibrationMap(ABC):
    """A fitted, immutable function from scores to probabilities."""

    kind: ClassVar[str]
    method: str
    record: FitRecord

    def predict(self, scores: Numbers) -> Floats:
        """Probabilities of preference, in the shape and float type of the scores.

        A torch tensor gives a tensor on its device, and nothing waits for the result: scores that are none (NaN, or
        beyond 1e30) give NaN there, where arrays raise an error. Float32 tables of millions of rows (where the loops in
        C were built), and of float32 on a GPU, are computed in float32, right to about 2e-6 of each probability (1e-5
        where log odds reach hundreds); all else in float64.
        """
        return (
            predict_tensor(self, scores)
            if is_tensor(scores)
            else blockwise(self._probabilities, scores)
        )

    def log_odds(self, scores: Numbers) -> Floats:
        """Log odds as float64: they keep the order where probabilities round to 0 or 1."""
        return blockwise(self._log_odds, scores, np.dtype(np.float64))

    def interval(self, scores: Numbers, level: float = 0.95) -> Interval:
        """Where the probability lies with confidence `level`, sampling error of the fit alone considered."""
        if not 0 < level < 1:
            raise DataError(f"level must lie in (0, 1), got {level}. Use e.g. 0.95.")
        low = blockwise(lambda block: self._ends(block, level)[0], scores)
        high = blockwise(lambda block: self._ends(block, level)[1], scores)
        return Interval(low, high)

    def band(self, scores: Numbers) -> Interval:
        """Where the probability may lie for all the log can tell: needs a fit that varied its choices.

        Unlike `interval`, this is not about sampling: no amount of the same log would make it narrower.
        """
        sensitivity = self.record.sensitivity
        if sensitivity is None:
            raise DataError(
                f"a band must come from choices that were varied, got a {self.method} map without any. "
                "Fit with fit_with_sensitivity, or with calibrank fit."
            )
        # The band is known at a few scores only: between and beyond them it holds the map at least.
        low = blockwise(
            lambda block: np.minimum(sensitivity.ends(block)[0], self._probabilities(block)), scores
        )
        high = blockwise(
            lambda block: np.maximum(sensitivity.ends(block)[1], self._probabilities(block)), scores
        )
        return Interval(low, high)

    def transform(self, frame: Any, *, score: str = "score", to: str = "probability") -> Any:
        """Add a column of probabilities to a dataframe of any kind; a lazy one stays lazy.

        Lazy frames (polars' LazyFrame, duckdb) are given an expression: nothing is computed or checked here, and a
        missing score gives a missing probability. Eager ones (pandas, polars, pyarrow) are checked as by `predict`.
        """
        return transform(self, frame, score, to)

    def report(
        self,
        scores: Numbers,
        labels: Any,
        *,
        users: Any = None,
        items: Any = None,
        propensity: Numbers | None = None,
        segments: Any = None,
    ) -> Any:
        """A page on how far to trust the map, judged on scores and labels: see `calibrank.report.report`.

        In a notebook it shows itself; `.save("report.html")` writes it.
        """
        # Reports stand above maps, which know them by name only, when asked.
        make = import_module("calibrank.report").report
        return make(
            self, scores, labels, users=users, items=items, propensity=propensity, segments=segments
        )

    def save(self, path: str | PathLike[str]) -> None:
        """Write the map as JSON: whole or not at all."""
        content = self.to_dict()
        write_atomic(
            Path(path),
            json.dumps({**content, "digest": digest_of(content)}, indent=1, allow_nan=False) + "\n",
        )

    def to_dict(self) -> dict[str, Any]:
        """The map as plain data, as `save` writes it."""
        record = _lists(asdict(self.record))
        head = {"format": FORMAT, "version": VERSION, "kind": self.kind, "method": self.method}
        return {**head, "map": self._content(), "record": record}

    def _repr_html_(self) -> str:
        """What a notebook shows: method, parameters, where the base rate comes from, and the curve."""
        scores = np.linspace(*self.span, 61)
        return card(self, scores)

    @property
    def parameters(self) -> dict[str, float]:
        """The map's parameters by name; empty for maps that have too many to name."""
        return {}

    @property
    def standard_errors(self) -> dict[str, float]:
        """Standard errors of `parameters`."""
        return {}

    @property
    @abstractmethod
    def span(self) -> tuple[float, float]:
        """Scores between which the map does its work."""

    @property
    @abstractmethod
    def description(self) -> str:
        """What the map is, in a sentence."""

    @abstractmethod
    def expression(self, score: "nw.Expr") -> "nw.Expr":
        """The probability as an expression of a float64 score column."""

    @abstractmethod
    def _log_odds(self, scores: Floats) -> Floats: ...

    @abstractmethod
    def _probabilities(self, scores: Floats) -> Floats: ...

    @abstractmethod
    def _ends(self, scores: Floats, level: float) -> Interval: ...

    @abstractmethod
    def _content(self) -> dict[str, Any]: ...


def _lists(value: Any) -> Any:
    """Tuples as lists, all the way down, as JSON reads them back: a digest must not depend on which."""
    if isinstance(value, dict):
        return {name: _lists(inner) for name, inner in value.items()}
    return [_lists(inner) for inner in value] if isinstance(value, list | tuple) else value


def predict_tensor(fitted: CalibrationMap, scores: Any) -> Any:
    """Probabilities of a torch tensor, as one."""
    from calibrank.maps.targets.tensors import predict  # noqa: PLC0415  (needs torch, and every kind of map)

    return predict(fitted, scores)


def blockwise(
    function: Callable[[Floats], Floats],
    scores: Numbers,
    dtype: "np.dtype[np.float64] | None" = None,
) -> Floats:
    """Apply a function to scores of any shape, a block at a time."""
    array = floats("scores", scores)
    require_scores(array)
    flat = array.reshape(-1)
    result = np.empty(flat.shape, dtype=dtype or array.dtype)
    for start in range(0, len(flat), _BLOCK):
        block = slice(start, start + _BLOCK)
        result[block] = function(flat[block].astype(np.float64, copy=False))
    return result.reshape(array.shape)
