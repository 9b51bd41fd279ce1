"""Maps on Spark columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import and_
from typing import Any

import numpy as np
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  (its name throughout Spark's documentation)

from calibrank._internal.segment_keys import Key
from calibrank._internal.validation import LARGEST_SCORE, Floats
from calibrank.maps.targets.target import Lines, Target, Unary, free_names, nested_choices

# Up to this many steps become nested conditions. About two hundred of them, beside the rest of a
# plan, outgrow what the JVM compiles.
_LARGEST_TREE = 64
# Processors cannot predict conditions. Without a formula behind each, a search of 64 edges takes a
# sixth of the time.
_LARGEST_TREE_OF_NUMBERS = 8
# Equally wide cells from which the search of a longer step map starts.
_CELLS = 4096


@dataclass(slots=True)
class SparkLevels:
    """The input of a level: its columns, and the numbers that a broadcast join adds to each row."""

    columns: Sequence[Column]
    """Text or whole numbers."""
    name: str
    """What the names of the joined columns start with."""
    depths: Sequence[int]
    """The lengths of keys that the term has."""
    values: list[Floats] = field(default_factory=list)
    """Numbers by key, after the one of an unknown level: those that the formula looks up."""

    @property
    def is_present(self) -> Column:
        """Whether no level is missing."""
        return reduce(and_, [column.isNotNull() for column in self.columns])

    def look_up(self, values: Floats) -> Column:
        """The number of the longest key that matches the row."""
        self.values.append(values)
        # The deepest level first.
        found = [F.col(self.names(depth)[-1]) for depth in reversed(self.depths)]
        return F.coalesce(*found, F.lit(float(values[0])))

    def names(self, depth: int) -> list[str]:
        """The joined columns of keys of one length, one for each number looked up so far."""
        return [f"{self.name}_{depth}_{place}" for place in range(len(self.values))]


class SparkTarget(Target):
    """Float64 Spark columns.

    Intermediate results that are used more than once are staged: `staged` lists columns, by name,
    to add to the frame in this order before the result is computed. A null score does not stay null
    here (`F.least` skips nulls): the caller makes the result null once, at the end. Conditions
    would not do, because Spark's optimizer pushes arithmetic into their branches, which repeats it
    many times.
    """

    def __init__(self, existing: Sequence[str]) -> None:
        self.staged: list[tuple[str, Column]] = []
        self._names = free_names(existing)

    def new_name(self) -> str:
        """A name for a temporary column, which no column has."""
        return next(self._names)

    def is_level(self, x: SparkLevels, count: int) -> Column:
        return x.is_present

    def by_level(self, x: SparkLevels, keys: Sequence[Key], values: Floats) -> Column:
        return self.stage(x.look_up(values))

    def stage(self, expression: Column) -> Column:
        """A temporary column that holds this expression."""
        name = self.new_name()
        self.staged.append((name, expression))
        return F.col(name)

    def where_valid(
        self, score: Column, formula: Unary, conditions: Sequence[Column] = ()
    ) -> Column:
        # Spark orders NaN above every number, so NaN exceeds the upper bound.
        is_valid = score.between(-LARGEST_SCORE, LARGEST_SCORE)
        for condition in conditions:
            is_valid = is_valid & condition
        valid = self.stage(F.when(is_valid, score))
        # Adding 0 times the score makes the result null where the score is. A condition would keep
        # Spark from sharing expressions that are computed twice.
        return formula(valid) + valid * 0.0

    def log(self, x: Column) -> Column:
        return F.log(x)

    def softplus(self, x: Column) -> Column:
        return self.maximum(x, 0.0) + F.log1p(F.exp(F.abs(x) * -1.0))

    def sigmoid(self, x: Column) -> Column:
        return 1.0 / (F.exp(x * -1.0) + 1.0)

    def minimum(self, x: Column, bound: float) -> Column:
        return F.least(x, F.lit(float(bound)))

    def maximum(self, x: Column, bound: float) -> Column:
        return F.greatest(x, F.lit(float(bound)))

    def steps(self, score: Column, edges: Sequence[float], values: Sequence[float]) -> Column:
        """Nested conditions for a few steps, which is faster, and an array search for many."""
        # Spark generates shorter code for a column that cannot be null.
        not_null = self.stage(F.coalesce(score, F.lit(0.0)))
        if len(values) <= _LARGEST_TREE:
            return _tree(not_null, edges, [F.lit(float(value)) for value in values])
        return _constant_array(values, "double")[self._search(not_null, edges)]

    def number_of(self, score: Column, edges: Sequence[float]) -> Column:
        """The number of edges that are at most the score, as an integer."""
        not_null = self.stage(F.coalesce(score, F.lit(0.0)))
        if len(edges) < _LARGEST_TREE_OF_NUMBERS:
            return _tree(not_null, edges, [F.lit(number) for number in range(len(edges) + 1)])
        return self._search(not_null, edges)

    def lines(self, score: Column, edges: Sequence[float], lines: Lines) -> Column:
        """The line is chosen once, not its origin, value and slope one after the other."""
        not_null = self.stage(F.coalesce(score, F.lit(0.0)))
        if len(edges) < _LARGEST_TREE:
            leaves = [
                (not_null - origin) * slope + value if slope else F.lit(value)
                for origin, value, slope in zip(*lines, strict=True)
            ]
            return self.stage(_tree(not_null, edges, leaves))
        place = self._search(not_null, edges)
        origin, value, slope = (_constant_array(each, "double")[place] for each in lines)
        return (not_null - origin) * slope + value

    def _search(self, score: Column, edges: Sequence[float]) -> Column:
        """A binary search among the edges that share the score's cell, of many equally wide cells.

        Computing a cell rounds, but it never changes the order of scores: all edges in lower cells
        are below the score, and all edges in higher cells are above it.
        """
        low = edges[0]
        high = edges[-1]
        scale = _CELLS / (high - low)
        if scale == math.inf:
            scale = 0.0
        cells = np.floor((np.array(edges) - low) * scale).astype(np.intp)
        first_edges = np.searchsorted(cells, np.arange(cells[-1] + 1))
        halvings = int(np.bincount(cells).max()).bit_length()
        # Beyond the last edge the search compares with edges that no score reaches.
        padded_edges = _constant_array([*edges, *[math.inf] * 2**halvings], "double")
        bounded = F.least(F.greatest(score, F.lit(low)), F.lit(high))
        cell = F.floor((bounded - low) * scale).cast("int")
        found = self.stage(_constant_array(first_edges.tolist(), "int")[cell])
        for halving in reversed(range(halvings)):
            stride = 2**halving
            is_reached = score >= padded_edges[found + (stride - 1)]
            found = self.stage(found + F.when(is_reached, stride).otherwise(0))
        return found


def _tree(score: Column, edges: Sequence[float], leaves: Sequence[Column]) -> Column:
    def choice(edge: float, below: Column, above: Column) -> Column:
        return F.when(score >= float(edge), above).otherwise(below)

    return nested_choices(edges, leaves, choice)


def _constant_array(values: Sequence[float], kind: str) -> Any:
    """A constant array, parsed from text once, when Spark folds constants.

    An array of literals would make planning slow.
    """
    plain = np.asarray(values).tolist()
    texts = ["Infinity" if value == math.inf else repr(value) for value in plain]
    return F.split(F.lit(",".join(texts)), ",").cast(f"array<{kind}>")
