"""Rows of a Spark frame: columns by role, their evidence, and errors about invalid rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from calibrank._internal.arguments import listed
from calibrank._internal.rules import COLUMN_RULES, remedy_for
from calibrank.errors import DataError
from calibrank.summary._cells import BINS

_INTEGERS = ("tinyint", "smallint", "int", "bigint", "boolean")
_FRACTIONS = ("float", "double", "decimal")
_TEXTS = ("string", "varchar", "char")
_KEPT = "_kept_"

LEVELS_END = 2**62
"""Larger integers are left for rows without a level, and for other groups."""


def is_valid(role: str, values: Column) -> Column:
    """Return whether each value obeys the rule for its role; null never does.

    Spark orders NaN above every number, so NaN exceeds every upper bound.
    """
    holds = COLUMN_RULES[role].holds(values)
    return F.coalesce(holds, F.lit(False))  # noqa: FBT003  (a literal has no name)


def column(name: str, kind: str = "double") -> Column:
    """Return a column by its exact name, which may contain dots, cast to a type."""
    return F.col(quoted(name)).cast(kind)


def quoted(name: str) -> str:
    """Quote a column name, so that dots and backticks are part of it."""
    return "`" + name.replace("`", "``") + "`"


def require_columns(frame: DataFrame, names: Mapping[str, str]) -> None:
    """Raise a `DataError` unless every named column exists and is numeric."""
    if not hasattr(frame, "dtypes") or not hasattr(frame, "withColumn"):
        raise DataError("frame", "be a Spark DataFrame", type(frame).__name__)
    types = dict(frame.dtypes)
    for role, name in names.items():
        if name not in types:
            rule, remedy = f"have a column {name!r}", f"Name it, e.g. {role}='x'."
            raise DataError("frame", rule, listed(frame.columns), remedy)
        if types[name] not in _INTEGERS and not types[name].startswith(_FRACTIONS):
            found = f"column {name!r} of type {types[name]}"
            raise DataError(role, "be numbers", found, "Cast it first.")


def term_column(frame: DataFrame, name: str, *, is_level: bool) -> Column:
    """Return a column of a term as numbers; as the levels of a term, whole numbers or text.

    As a level, 1.0 is 1; it is null where a number is not whole.
    """
    if name not in frame.columns:
        rule = f"have the column {name!r} of the map"
        raise DataError("frame", rule, listed(frame.columns), "Add it.")
    if not is_level:
        require_columns(frame, {f"column {name!r}": name})
        return column(name)
    kind = dict(frame.dtypes)[name]
    if kind == "boolean" or kind.startswith(_TEXTS):
        return column(name, "string")
    if kind in _INTEGERS:
        return column(name, "bigint")
    if not kind.startswith(_FRACTIONS):
        rule, remedy = "hold text, whole numbers or booleans", "Cast it to text, as for the fit."
        raise DataError(f"column {name!r}", rule, f"type {kind}", remedy)
    number = column(name)
    # Larger ones stand for many whole numbers.
    is_whole = (F.abs(number) < float(2**53)) & (number == F.floor(number))
    return F.when(is_whole, number.cast("bigint"))


def whole_number(text: str) -> int | None:
    """The whole number of 63 bits that is written as this text, if there is one."""
    try:
        number = int(text)
    except ValueError:
        return None
    return number if str(number) == text and -(2**63) <= number < 2**63 else None


@dataclass(frozen=True, slots=True)
class Rows:
    """The used columns of a frame, named by role and cast to numbers."""

    frame: DataFrame
    names: Mapping[str, str]
    """The original column names by role."""
    names_kept: tuple[str, ...] = ()
    """The original names of the columns of terms."""
    is_impressions: bool = False
    """Whether every row was shown, so that the propensity applies to both classes."""

    @classmethod
    def of(
        cls,
        frame: DataFrame,
        names: Mapping[str, str | None],
        kept: Mapping[str, Column] | None = None,
        *,
        is_impressions: bool = False,
    ) -> Rows:
        """Select columns by role, and those of terms; a role without a column is left out."""
        given = {role: name for role, name in names.items() if name is not None}
        require_columns(frame, given)
        types = dict(frame.dtypes)
        columns = []
        for role, name in given.items():
            # Spark compares integers faster than doubles.
            is_integer = role == "label" and types[name] in _INTEGERS
            kind = "bigint" if is_integer else "double"
            columns.append(column(name, kind).alias(role))
        kept = kept or {}
        for place, values in enumerate(kept.values()):
            columns.append(values.alias(f"{_KEPT}{place}"))
        return cls(frame.select(*columns), given, tuple(kept), is_impressions)

    @property
    def kept(self) -> list[str]:
        """The columns of terms in the frame, under names that no role has."""
        return [f"{_KEPT}{place}" for place in range(len(self.names_kept))]

    @property
    def level_is_number(self) -> bool:
        """Whether the level is a single column of whole numbers."""
        return [kind for _, kind in self.frame.select(*self.kept).dtypes] == ["bigint"]

    @property
    def level_id(self) -> Column:
        """The level that a row keeps as one number, itself or its hash, with bits left for a bin.

        Grouping by texts takes twice as long. Two of a million texts have the same hash of 57 bits
        with a probability of 4e-6. The id of a number that is too large for it is null. Others lie
        between plus and minus `LEVELS_END`, with any bin.
        """
        if not self.level_is_number:
            half = F.shiftright(F.xxhash64(*self.kept), 1)
            return half.bitwiseAND(~((BINS - 1) << self.bin_shift))
        level = F.col(*self.kept)
        fits = level.between(-LEVELS_END // BINS, LEVELS_END // BINS - 1)
        return F.when(fits, level * BINS)

    @property
    def bin_shift(self) -> int:
        """The lowest bit of `level_id` that is left for a bin.

        Spark's hash map finds a place by the low bits of a key, and gives up after two occupied
        ones. Levels that are numbered from 0 on fill it without gaps. Between the bins of a hash
        are gaps, into which those of another one fit.
        """
        return 0 if self.level_is_number else 1

    def with_levels_as_text(self) -> Rows:
        """The same rows; what they keep is text."""
        kept = {name: F.col(name).cast("string") for name in self.kept}
        return replace(self, frame=self.frame.withColumns(kept))

    def missing_level_error(self) -> DataError:
        """Return the error about the first column in which a level is missing."""
        counts = [F.count(F.when(F.col(name).isNull(), 1)) for name in self.kept]
        missing = list(self.frame.agg(*counts).collect()[0])
        name = next(name for name, count in zip(self.names_kept, missing, strict=True) if count)
        remedy = 'Drop such rows, or fill them with a text, such as "missing".'
        return DataError(f"column {name!r}", "not be missing", "rows without a level", remedy)

    @property
    def has_propensity(self) -> bool:
        """Whether there is a propensity column."""
        return "propensity" in self.names

    @property
    def has_weight(self) -> bool:
        """Whether there is a column of case weights."""
        return "weight" in self.names

    @property
    def kind(self) -> str:
        """The kind of evidence."""
        if self.is_impressions:
            return "impressions"
        return "ips" if self.has_propensity else "naive"

    @property
    def has_unit_totals(self) -> bool:
        """Whether the total mass of every row is 1."""
        return not self.has_weight and not (self.is_impressions and self.has_propensity)

    @property
    def valid(self) -> Column:
        """Whether a row obeys all rules except the one for scores.

        The range of the scores is known separately, and checks them all at once.
        """
        checks = [is_valid(role, F.col(role)) for role in self.names if role != "score"]
        return reduce(and_, checks)

    @property
    def positive(self) -> Column:
        """The positive mass of each row; an invalid propensity of 0 gives 0, not an error."""
        mass = F.lit(1.0)
        usable = F.col("label") == 1
        if self.has_propensity:
            mass = mass / F.col("propensity")
            usable = usable & (F.col("propensity") > 0.0)
        if self.has_weight:
            mass = mass * F.col("weight")
        return F.when(usable, mass).otherwise(0.0)

    @property
    def total(self) -> Column:
        """The total mass of each row; an invalid propensity of 0 gives 0, not an error."""
        mass = F.col("weight") if self.has_weight else F.lit(1.0)
        if self.is_impressions and self.has_propensity:
            usable = F.col("propensity") > 0.0
            mass = F.when(usable, mass / F.col("propensity")).otherwise(0.0)
        return mass

    def invalid_row_error(self) -> DataError:
        """Return the error about the first role that has invalid rows; this reads all rows.

        It contains one invalid value and the number of invalid rows.
        """
        counts = []
        examples = []
        for role in self.names:
            invalid = ~is_valid(role, F.col(role))
            text = F.coalesce(F.col(role).cast("string"), F.lit("null"))
            counts.append(F.count(F.when(invalid, 1)).alias(f"{role}_count"))
            example = F.first(F.when(invalid, text), ignorenulls=True)
            examples.append(example.alias(f"{role}_example"))
        found = self.frame.agg(*counts, *examples).collect()[0]
        for role, name in self.names.items():
            count, example = found[f"{role}_count"], found[f"{role}_example"]
            if count:
                subject = role if name == role else f"{role} (column {name!r})"
                rows = "1 row" if count == 1 else f"{count:,} rows"
                value = math.nan if example == "null" else float(example)
                rule = COLUMN_RULES[role].statement_for(value)
                return DataError(subject, rule, f"{example} in {rows}", remedy_for(role, value))
        return changed_rows_error()


def changed_rows_error() -> DataError:
    """Return the error about a frame whose rows change from one pass to the next."""
    remedy = "Cache it, or write it to storage first: random columns and growing tables change."
    rule = "hold the same rows each time it is read"
    return DataError("frame", rule, "others the second time", remedy)
