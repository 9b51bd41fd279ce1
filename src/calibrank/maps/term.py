"""The terms of a map: what columns beside the score add to the log odds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from calibrank._internal.arguments import text
from calibrank._internal.json import Saved
from calibrank._internal.segment_keys import column_of
from calibrank._internal.validation import Floats, floats, require_role
from calibrank.errors import DataError
from calibrank.maps.targets.target import Target

Values: TypeAlias = npt.NDArray[Any]
"""The input of a term, one value per score: numbers, or numbers of levels."""

Margins: TypeAlias = tuple[Floats | float, Floats | float]
"""Distances in log odds from a probability down and up to the ends of its interval."""

_LARGEST_NUMBER = 1e9


class Term(Saved, ABC):
    """A fitted part of a map, which states once what it adds to the log odds.

    A term has one input: a column of numbers, or the level of one or more nested columns.
    """

    role: ClassVar[str]
    """What its input is: "feature", "rank" (both are numbers) or "level"."""
    columns: tuple[str, ...]
    replaces_curve: ClassVar[bool] = False
    """Whether `on` gives the log odds in place of the curve's, to which other terms then add."""

    @abstractmethod
    def on(self, target: Target, score: Any, curve: Any, x: Any) -> Any:
        """What the term adds to the log odds, as an expression of the target.

        `curve` are the log odds of the curve and `x` is the input: a number per row, or what the
        target's `by_level` takes.
        """

    @abstractmethod
    def read(self, columns: Any, rows: int | None = None) -> Values:
        """The input of a mapping or a dataframe, checked; one value per score."""

    def curve_change(self, x: Values) -> Floats | float:
        """By how much the log odds of the curve are multiplied in addition, at each row."""
        return 0.0

    @abstractmethod
    def margins(self, scores: Floats, curve: Floats, x: Values, level: float) -> Margins:
        """Half widths of the confidence interval of what the term adds, in log odds.

        `curve` are the log odds of the curve, as in `on`.
        """

    @abstractmethod
    def moved(self, shift: float, slope: float) -> Self:
        """The term of the map whose log odds are `shift + slope * log odds`.

        The curve is shifted already: a term that adds to it only has to be multiplied.
        """

    @property
    @abstractmethod
    def description(self) -> str:
        """What the term does, in a clause that follows "Changed "."""

    @property
    @abstractmethod
    def largest_term(self) -> float:
        """The largest magnitude that it adds, relative to which it is rounded."""

    def float32_problem(self) -> str | None:
        """Why the term would be inaccurate in float32, as a sentence; None if it would not."""
        return None

    @abstractmethod
    def example(self, place: int) -> dict[str, str | float]:
        """The values of its columns in test vectors: in turn all that may go wrong."""


def number_column(name: str, columns: Any, rows: int | None, role: str) -> Floats:
    """A column of valid numbers of a mapping or a dataframe, one per score."""
    subject = f"column {name!r}"
    numbers = floats(subject, column_of("columns", name, columns))
    numbers = np.asarray(numbers).reshape(-1).astype(np.float64, copy=False)
    if rows is not None:
        require_rows(name, len(numbers), rows)
    require_role(role, subject, numbers)
    return numbers


def require_rows(name: str, found: int, rows: int) -> None:
    """Raise a `DataError` unless a column has one value per score."""
    if found != rows:
        raise DataError(f"column {name!r}", f"have one value per score ({rows})", found)


def require_names(columns: Sequence[str], what: str) -> None:
    """Raise a `DataError` unless these are one or more different names."""
    for name in columns:
        text(what, name, "It names a column.")
    if not columns or len(set(columns)) < len(columns):
        raise DataError(what, "be one or more different column names", columns)


def require_finite(what: str, values: Sequence[float]) -> None:
    """Raise a `DataError` if a number is so large that sums of log odds would not be finite."""
    if values and not max(map(abs, values)) <= _LARGEST_NUMBER:
        raise DataError(what, "lie within +-1e9", max(values, key=abs))


def require_increasing(what: str, values: Sequence[float]) -> None:
    """Raise a `DataError` unless numbers are strictly increasing."""
    if not all(low < high for low, high in pairwise(values)):
        raise DataError(what, "be strictly increasing")
