"""Terms of a map with covariates: what one column adds to the log odds."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from calibrank._internal.json import Fields
from calibrank._internal.segment_keys import Key, column_of, encode, find_nodes, number_nodes
from calibrank._internal.validation import Floats, Indices, floats, require_role
from calibrank.errors import DataError
from calibrank.maps.targets.target import Target


@dataclass(frozen=True, slots=True)
class Term:
    """What a column adds to the log odds: linear between knots, constant beyond the outer ones."""

    column: str
    knots: tuple[float, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.knots) < 2 or len(self.values) != len(self.knots):
            raise DataError(
                f"a term must have two or more knots and as many values, got {len(self.knots)} "
                f"and {len(self.values)}."
            )
        if not all(low < high for low, high in pairwise(self.knots)):
            raise DataError("the knots of a term must be strictly increasing.")

    def on(self, target: Target, x: Any) -> Any:
        """The term as an expression of the target; x is a number per row."""
        slopes = [0.0]
        for (low, high), (below, above) in zip(
            pairwise(self.knots), pairwise(self.values), strict=True
        ):
            slopes.append((above - below) / (high - low))
        slopes.append(0.0)
        origins = (self.knots[0], *self.knots)
        values = (self.values[0], *self.values)
        return target.lines(x, self.knots, origins, values, slopes)

    def read_column(self, features: Any, rows: int) -> Floats:
        """The column of a mapping or a dataframe, as `on` takes it for arrays."""
        return feature(self.column, features, rows)

    def content(self) -> dict[str, Any]:
        """The term as JSON."""
        return {"column": self.column, "knots": list(self.knots), "values": list(self.values)}


@dataclass(frozen=True, slots=True)
class CategoryTerm:
    """What the category in a column of text adds to the log odds: 0 for one that is not known."""

    column: str
    categories: tuple[str, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        count = len(self.categories)
        if not count or len(set(self.categories)) < count or len(self.values) != count:
            raise DataError(
                "a category term must have one or more different categories and as many values, "
                f"got {count} and {len(self.values)}."
            )

    @property
    def keys(self) -> tuple[Key, ...]:
        """The categories as keys of segments of one column."""
        return tuple((category,) for category in self.categories)

    def on(self, target: Target, x: Any) -> Any:
        """The term as an expression of the target; x is what its `by_segment` takes."""
        return target.by_segment(x, self.keys, (0.0, *self.values))

    def read_column(self, features: Any, rows: int | None = None) -> Indices:
        """The number of each row's category, from 1 on; 0 is not known."""
        encoded = encode(self.column, column_of("features", self.column, features))
        if rows is not None:
            require_rows(self.column, "value", len(encoded.codes), rows)
        return find_nodes(number_nodes(self.keys), [encoded])

    def content(self) -> dict[str, Any]:
        """The term as JSON."""
        categories, values = list(self.categories), list(self.values)
        return {"column": self.column, "categories": categories, "values": values}


def read_term(fields: Fields) -> Term | CategoryTerm:
    """A term from JSON: of categories, or of numbers."""
    if fields.holds("categories"):
        fields.only("column", "categories", "values")
        categories = tuple(fields.texts("categories"))
        return CategoryTerm(fields.text("column"), categories, tuple(fields.numbers("values")))
    fields.only("column", "knots", "values")
    knots = tuple(fields.numbers("knots"))
    return Term(fields.text("column"), knots, tuple(fields.numbers("values")))


def feature(name: str, features: Any, rows: int) -> Floats:
    """A column of finite numbers, one per score, of a mapping or a dataframe."""
    numbers = floats(f"feature {name!r}", column_of("features", name, features))
    numbers = np.asarray(numbers).reshape(-1).astype(np.float64)
    require_rows(name, "number", len(numbers), rows)
    require_role("feature", f"feature {name!r}", numbers)
    return numbers


def require_rows(name: str, what: str, found: int, rows: int) -> None:
    """Raise a `DataError` unless a feature has one value per score."""
    if found != rows:
        raise DataError(f"feature {name!r} must have one {what} per score ({rows}), got {found}.")
