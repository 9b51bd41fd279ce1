"""What every fitted map can do, whatever its shape."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from calibrank.arrays import Floats, Numbers, floats, require_scores
from calibrank.documents import Fields, seal, write_whole
from calibrank.errors import DataError
from calibrank.maps.expressions import transform

if TYPE_CHECKING:
    import narwhals as nw

FORMAT = "calibrank-map"
VERSION = 1
_BLOCK = 2**15  # rows at a time: temporaries stay in cache, whatever the table's size


class Interval(NamedTuple):
    """Lower and upper ends, one a score."""

    low: Floats
    high: Floats


@dataclass(frozen=True, slots=True)
class Anchoring:
    """Labels of randomly shown pairs: how many, what they are worth, and their share in level, slope and bend."""

    labels: int
    worth: float
    level: float
    slope: float
    bend: float

    @classmethod
    def read(cls, fields: Fields) -> "Anchoring":
        """Rebuild from a saved map."""
        fields.only(*cls.__slots__)
        shares = (fields.number(name) for name in ("worth", "level", "slope", "bend"))
        return cls(fields.count("labels"), *shares)


DOORS = ("none", "random labels", "base rate")
"""Where a map's base rate comes from."""


@dataclass(frozen=True, slots=True)
class FitRecord:
    """What a map was fitted on and how well the fit was solved; saved with it."""

    evidence: str
    rows: int
    positive: float
    total: float
    exact: bool
    loss: float | None = None
    residual: float | None = None
    iterations: int = 0
    at_floor: tuple[str, ...] = ()
    door: str = "none"
    anchoring: Anchoring | None = None

    @classmethod
    def read(cls, fields: Fields) -> "FitRecord":
        """Rebuild a record from a saved map."""
        fields.only(*cls.__slots__)
        return cls(
            evidence=fields.text("evidence"),
            rows=fields.count("rows"),
            positive=fields.number("positive"),
            total=fields.number("total"),
            exact=fields.flag("exact"),
            loss=fields.optional("loss"),
            residual=fields.optional("residual"),
            iterations=fields.count("iterations"),
            at_floor=tuple(fields.texts("at_floor")),
            door=_door(fields),
            anchoring=None if fields.values.get("anchoring") is None else Anchoring.read(fields.child("anchoring")),
        )


def _door(fields: Fields) -> str:
    door = fields.text("door")
    if door not in DOORS:
        raise DataError(f"{fields.where}, door must be one of {', '.join(DOORS)}, got {door!r}.")
    return door


class CalibrationMap(ABC):
    """A fitted, immutable function from scores to probabilities."""

    kind: ClassVar[str]
    method: str
    record: FitRecord

    def predict(self, scores: Numbers) -> Floats:
        """Probabilities of preference, in the shape and float type of the scores.

        With numba installed, float32 tables of millions of rows are computed in float32, which is as fast as copying
        them a few times and right to about 2e-6 of each probability; all else is computed in float64.
        """
        return blockwise(self._probabilities, scores)

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

    def transform(self, frame: Any, *, score: str = "score", to: str = "probability") -> Any:
        """Add a column of probabilities to a dataframe of any kind; a lazy one stays lazy.

        Lazy frames (polars' LazyFrame, duckdb) are given an expression: nothing is computed or checked here, and a
        missing score gives a missing probability. Eager ones (pandas, polars, pyarrow) are checked as by `predict`.
        """
        return transform(self, frame, score, to)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the map as JSON: whole or not at all."""
        content = self.to_dict()
        write_whole(Path(path), json.dumps({**content, "digest": seal(content)}, indent=1, allow_nan=False) + "\n")

    def to_dict(self) -> dict[str, Any]:
        """The map as plain data, as `save` writes it."""
        record = {**asdict(self.record), "at_floor": list(self.record.at_floor)}
        head = {"format": FORMAT, "version": VERSION, "kind": self.kind, "method": self.method}
        return {**head, "map": self._content(), "record": record}

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


def blockwise(
    function: Callable[[Floats], Floats], scores: Numbers, dtype: "np.dtype[np.float64] | None" = None
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
