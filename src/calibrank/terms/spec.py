"""Specifications of terms: what can be added to a calibrator."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import ClassVar

from calibrank._internal.arguments import instance, shown, text, whole
from calibrank.errors import DataError


class TermSpec(ABC):
    """A frozen configuration of a term; `Gaussian() + Level("country")` is a model with one."""

    columns: tuple[str, ...]

    @property
    def name(self) -> str:
        """The term in the name of a method."""
        return " > ".join(self.columns)


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Level(TermSpec):
    """An intercept, and a slope, per level of a column of text, whole numbers or booleans.

    With several columns, such as ("country", "city"), each is nested in the one before: cities
    shrink towards their country, countries towards a typical one. How much levels differ is
    estimated from the data (empirical Bayes), so small levels borrow from their parent, and a level
    that was never seen gets its parent's. Within a level, probabilities increase with the score.

    Slopes are shrunk in the same way. Beside other terms, a column of more than 256 levels has
    intercepts alone, and `slopes=True` is an error there.

    >>> Level("country", "city", slopes=False)
    Level('country', 'city', slopes=False)
    """

    columns: tuple[str, ...]
    slopes: bool | None

    def __init__(self, *columns: str, slopes: bool | None = None) -> None:
        object.__setattr__(self, "columns", column_names(columns))
        if slopes is not None:
            instance("slopes", slopes, bool)
        object.__setattr__(self, "slopes", slopes)

    def __repr__(self) -> str:
        arguments = [*map(repr, self.columns)]
        if self.slopes is not None:
            arguments.append(f"slopes={self.slopes}")
        return f"Level({', '.join(arguments)})"


class _OfColumn(TermSpec):
    """A term of one column, with a whole number."""

    column: str
    _number: ClassVar[tuple[str, int, int]]
    """The name of the number, the least and the most."""

    def __post_init__(self) -> None:
        text("column", self.column, "It names a column.")
        name, least, most = self._number
        object.__setattr__(self, name, whole(name, getattr(self, name), least, most))

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]  # of one column
        return (self.column,)

    def __repr__(self) -> str:
        arguments = [repr(self.column)]
        for field in fields(self)[1:]:  # type: ignore[arg-type]  # subclasses are dataclasses
            value = getattr(self, field.name)
            if value != field.default:
                arguments.append(f"{field.name}={value}")
        return f"{type(self).__name__}({', '.join(arguments)})"


@dataclass(frozen=True, slots=True, repr=False)
class Smooth(_OfColumn):
    """A smooth function of a column of numbers: linear between at most `knots` quantiles.

    Beyond the outermost quantiles it is constant; with `knots=2` it is a straight line between
    them. How far it deviates from 0 and from a line is chosen by marginal likelihood.

    >>> Smooth("price")
    Smooth('price')
    """

    _number = ("knots", 2, 50)
    column: str
    knots: int = 10


@dataclass(frozen=True, slots=True, repr=False)
class Group(_OfColumn):
    """Groups never seen again, such as queries or users, whose levels differ: integrated out.

    The map is for rows of a new group, so it needs no column. Curves whose level differs by group
    are averaged with plain ones and a constant, by their loss on held-out groups.

    >>> Group("query")
    Group('query')
    """

    _number = ("folds", 2, 1000)
    column: str
    folds: int = 5


@dataclass(frozen=True, slots=True, repr=False)
class Position(_OfColumn):
    """A curve of its own for the first `n` positions of each list, for `anchor`.

    The column has the rank of each pair in its list, counted from 1 (`list_ranks`).

    >>> Position("rank", n=10)
    Position('rank', n=10)
    """

    _number = ("n", 1, 10**6)
    column: str = "rank"
    n: int = 5


def column_names(given: Sequence[str], argument: str = "columns") -> tuple[str, ...]:
    """One or more different names of columns; errors name the argument."""
    names = tuple(given)
    for name in names:
        if not isinstance(name, str):
            raise DataError(argument, "be column names", shown(name), "E.g. 'country'.")
        text(argument, name, "It names a column.")
    if not names or len(set(names)) < len(names):
        raise DataError(argument, "be one or more different column names", names, "Name each once.")
    return names
