"""Maps as one SQL expression, without user-defined functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from math import inf

from calibrank._internal.arguments import label, shown, text
from calibrank._internal.rules import COLUMN_RULES, ColumnRule
from calibrank._internal.segment_keys import Key
from calibrank._internal.validation import Floats
from calibrank.errors import DataError
from calibrank.maps.calibration_map import CalibrationMap, require_map
from calibrank.maps.targets.python import FloatTarget
from calibrank.maps.targets.sql_dialects import DIALECTS, Dialect
from calibrank.maps.targets.target import (
    Expression,
    Formula,
    Lines,
    Target,
    Unary,
    free_names,
    group_by_parent,
    nested_choices,
)
from calibrank.maps.term import Term

# exp(700) is about 1e304 and exp(-700) about 1e-304, both within float64.
_LARGEST_EXPONENT = 700.0
# Levels that one CASE compares a row with, one after the other.
_MOST_BRANCHES = 256
# Characters to divide texts by: control characters, and others that have no meaning either.
_MARKS = range(1, 9)
_MORE_MARKS = range(0xE000, 0xF900)


# How tightly the outermost operator of an expression binds.
_SUM, _PRODUCT, _ATOM = range(3)


def to_sql(fitted: CalibrationMap, dialect: str, score: str = "score") -> str:
    """The probability as one SQL expression of a column.

    It is NULL where the score is NULL, NaN or beyond +-1e30. Dialects are spark, duckdb,
    postgresql, sqlite, bigquery, snowflake, clickhouse and trino. The name of the column is always
    quoted. Terms read their columns under the names they had in the fit, with the same rule: the
    result is NULL where one of them is NULL or no valid number. A level is the text of its column,
    as in the fit: 1.0 is 1, and a boolean true or false. Where an engine cannot tell (booleans in
    SQLite; decimals in BigQuery, Snowflake and Trino), write the column as such text yourself.

    >>> from calibrank import MinMax
    >>> to_sql(MinMax().fit([1.0, 2.0, 5.0], [0, 0, 1]), "sqlite", score="s")
    'CASE WHEN +`s` BETWEEN -1e+30 AND 1e+30 THEN MAX(MIN((+`s` - 1e0) / 4e0, 1e0), 0e0) END'
    """
    require_map(fitted)
    if text("dialect", dialect) not in DIALECTS:
        raise DataError("dialect", f"be one of {', '.join(DIALECTS)}", shown(dialect))
    if "\0" in label("score", score, "It names a column."):
        raise DataError("score", "be the name of a column", f"{score!r}")
    names = free_names([score, *fitted.columns])
    target = SqlTarget(DIALECTS[dialect], {"k": next(names), "v": next(names)})
    inputs = [target.input(term) for term in fitted.terms]
    return target.text(fitted.where_valid(target, target.column(score), inputs))


@dataclass(frozen=True, slots=True)
class Sql(Expression):
    """SQL text with arithmetic that writes longer text, and the bounds that are known of its value.

    Operations that change nothing (plus 0, times 1) are left out.
    """

    text: str
    precedence: int
    dialect: Dialect
    low: float = -inf
    high: float = inf

    def within(self, low: float, high: float) -> Sql:
        """The same expression where its value is known to lie in [low, high]."""
        return replace(self, low=low, high=high)

    def rounded_to(self, unit: float) -> Sql:
        """Plus and minus a unit, which rounds small values to multiples of its last digit."""
        number = self._operand(unit, _ATOM)
        return self._new(f"{self.text} + {number} - {number}", _SUM)

    def binary(self, left: Sql | float, operator: str, right: Sql | float) -> Sql:
        if operator == "*" and not isinstance(right, Sql):
            left, right = right, left
        if operator in "+-" and not isinstance(right, Sql):
            return self._plus(right if operator == "+" else -right)
        if (operator, left) in (("+", 0), ("*", 1)) or (operator, right) == ("/", 1):
            return self
        if (operator, left) == ("*", -1):
            return self._new(f"-{self._operand(self, _ATOM)}", _PRODUCT)
        if operator == "*" and left is right:
            return self._new(f"POWER({self.text}, {self._operand(2, _ATOM)})", _ATOM)
        precedence = _SUM if operator in "+-" else _PRODUCT
        # What follows an operator must bind more tightly than it.
        texts = self._operand(left, precedence), self._operand(right, precedence + 1)
        return self._new(f" {operator} ".join(texts), precedence)

    def _plus(self, number: float) -> Sql:
        if number == 0:
            return self
        sign = "-" if number < 0 else "+"
        result = self._new(f"{self.text} {sign} {self._operand(abs(number), _ATOM)}", _SUM)
        return result.within(self.low + number, self.high + number)

    def _new(self, text: str, precedence: int) -> Sql:
        return Sql(text, precedence, self.dialect)

    def _operand(self, value: Sql | float, precedence: int) -> str:
        """A number, or an expression, in parentheses if it binds less tightly than this."""
        if not isinstance(value, Sql):
            return self.dialect.number(float(value))
        return value.text if value.precedence >= precedence else f"({value.text})"


@dataclass(frozen=True, slots=True)
class SqlTarget(Target):
    """SQL text; an expression whose value is known is a number, and is computed as one."""

    dialect: Dialect
    free: Mapping[str, str] = field(default_factory=dict)
    """Names that no column has."""

    def column(self, name: str) -> Sql:
        """A column of any numeric type, as float64."""
        return self._atom(self.dialect.as_double.replace("{}", self.dialect.name(name)))

    def text_column(self, name: str) -> str:
        """A column of any type as text."""
        return self.dialect.as_text.replace("{}", self.dialect.name(name))

    def input(self, term: Term) -> Sql | list[str]:
        """A numeric column, or the columns of a level as `by_level` takes them."""
        if term.role == "level":
            return [self.text_column(name) for name in term.columns]
        return self.column(term.columns[0])

    def is_valid(self, x: Sql, rule: ColumnRule) -> str:
        return f"{x.text} BETWEEN {self.text(rule.low)} AND {self.text(rule.high)}"

    def is_level(self, x: Sequence[str], count: int) -> str:
        return " AND ".join([f"({column}) IS NOT NULL" for column in x])

    def by_level(self, x: Sequence[str], keys: Sequence[Key], values: Floats) -> Sql:
        """One CASE per column, nested; where it has many branches, by comparisons first.

        Where an engine can look up a key in a table, many keys are one.
        """
        if self.dialect.look_up and len(keys) > _MOST_BRANCHES:
            return self._atom(self._looked_up(x, keys, values))
        children = group_by_parent(keys)

        def case(parent: Key, fallback: float) -> str:
            if parent not in children:
                return self.text(fallback)
            branches = []
            for name, node in children[parent]:
                branches.append((name, case((*parent, name), values[node])))
            return self._choice(x[len(parent)], sorted(branches), self.text(fallback))

        return self._atom(case((), values[0]))

    def _looked_up(self, x: Sequence[str], keys: Sequence[Key], values: Floats) -> str:
        """One table per number of columns; what it does not have, the one of fewer columns may."""
        used = set(chain.from_iterable(chain.from_iterable(keys)))
        unused = [mark for mark in map(chr, (*_MARKS, *_MORE_MARKS)) if mark not in used]
        mark, joint = unused[:2]
        found = self.text(values[0])
        for depth in range(1, len(x) + 1):
            numbers = [number for number, key in enumerate(keys, start=1) if len(key) == depth]
            if not numbers:
                continue
            columns = [f"({column})" for column in x[:depth]]
            found = self.dialect.look_up.format(
                key=f" || {self.dialect.string(joint)} || ".join(columns),
                keys=self.dialect.string(mark.join([joint.join(keys[n - 1]) for n in numbers])),
                mark=self.dialect.string(mark),
                values=f"'{','.join([repr(float(values[n])) for n in numbers])}'",
                default=found,
                **self.free,
            )
        return found

    def _choice(self, column: str, branches: Sequence[tuple[str, str]], fallback: str) -> str:
        """The text of the branch that a column names; branches are in the order of their names."""
        if len(branches) <= _MOST_BRANCHES:
            cases = [f"WHEN {self.dialect.string(name)} THEN {text}" for name, text in branches]
            return f"CASE {column} {' '.join(cases)} ELSE {fallback} END"
        middle = len(branches) // 2
        below = self._choice(column, branches[:middle], fallback)
        above = self._choice(column, branches[middle:], fallback)
        name = self.dialect.string(branches[middle][0])
        is_below = f"({column}){self.dialect.bytewise} < {name}"
        return f"CASE WHEN {is_below} THEN {below} ELSE {above} END"

    def text(self, value: Sql | float) -> str:
        """The SQL of an expression or a number."""
        return value.text if isinstance(value, Sql) else self.dialect.number(float(value))

    def place(self, score: Sql, low: float, width: float) -> Sql:
        score, low, _ = self._without_underflow(score, low, low + width)
        return (score - low) / width

    def over_range(
        self, score: Sql, low: float, high: float, formula: Formula, *, scale_free: bool
    ) -> Sql:
        """One branch each below, within and above the range, without terms that are 0 there."""
        score, low, high = self._without_underflow(score, low, high)
        below = self.text(formula(score.within(-inf, low), low, high))
        within = self.text(formula(score.within(low, high), low, high))
        above = self.text(formula(score.within(high, inf), low, high))
        is_below = f"{score.text} < {self.text(low)}"
        is_within = f"{score.text} < {self.text(high)}"
        return self._atom(
            f"CASE WHEN {is_below} THEN {below} WHEN {is_within} THEN {within} ELSE {above} END"
        )

    def log(self, x: Sql | float) -> Sql | float:
        if not isinstance(x, Sql):
            return FloatTarget().log(x)
        return self._call("LN", x)

    def softplus(self, x: Sql | float) -> Sql | float:
        if not isinstance(x, Sql):
            return FloatTarget().softplus(x)
        # log(1 + e) = 2 atanh(e / (2 + e)) keeps every digit of a small e; few engines have log1p.
        # With e = exp(-|x|), e / (2 + e) = 1 / (2 exp(|x|) + 1).
        magnitude = self._call(self.dialect.least, self._call("ABS", x), _LARGEST_EXPONENT)
        if self.dialect.atanh is None:
            # It loses the last digits of a small e, which log odds of ordinary size do not show.
            log1p = self._call("LN", 1.0 + self._call("EXP", magnitude * -1.0))
        else:
            small = 1.0 / (2.0 * self._call("EXP", magnitude) + 1.0)
            log1p = 2.0 * self._call(self.dialect.atanh, small)
        return self._call(self.dialect.greatest, x, 0.0) + log1p

    def sigmoid(self, x: Sql) -> Sql:
        # Some engines raise an error where an exponential overflows, PostgreSQL also where it
        # underflows.
        below = self._call(self.dialect.least, x, _LARGEST_EXPONENT)
        bounded = self._call(self.dialect.greatest, below, -_LARGEST_EXPONENT)
        return 1.0 / (1.0 + self._call("EXP", bounded * -1.0))

    def minimum(self, x: Sql | float, bound: float) -> Sql | float:
        if not isinstance(x, Sql):
            return min(x, bound)
        if x.high <= bound:
            return x
        return bound if x.low >= bound else self._call(self.dialect.least, x, bound)

    def maximum(self, x: Sql | float, bound: float) -> Sql | float:
        if not isinstance(x, Sql):
            return max(x, bound)
        if x.low >= bound:
            return x
        return bound if x.high <= bound else self._call(self.dialect.greatest, x, bound)

    def where_valid(self, score: Sql, formula: Unary, conditions: Sequence[str] = ()) -> Sql:
        valid = " AND ".join([self.is_valid(score, COLUMN_RULES["score"]), *conditions])
        return self._atom(f"CASE WHEN {valid} THEN {self.text(formula(score))} END")

    def steps(self, score: Sql, edges: Sequence[float], values: Sequence[float]) -> Sql:
        return self._tree(score, edges, [self.text(value) for value in values])

    def lines(self, score: Sql, edges: Sequence[float], lines: Lines) -> Sql:
        """One tree whose leaves are straight lines, instead of one tree per number."""
        leaves = []
        for origin, value, slope in zip(*lines, strict=True):
            # Each origin may be the one near 0 from which a difference is too small.
            high = max(lines[0][-1], origin + 1e-100)
            near, start, _ = self._without_underflow(score, origin, high)
            leaves.append(self.text((near - start) * slope + value))
        return self._tree(score, edges, leaves)

    def _tree(self, score: Sql, edges: Sequence[float], leaves: Sequence[str]) -> Sql:
        def case(edge: float, below: str, above: str) -> str:
            return f"CASE WHEN {score.text} < {self.text(edge)} THEN {below} ELSE {above} END"

        return self._atom(nested_choices(edges, leaves, case))

    def _call(self, function: str, *arguments: Sql | float) -> Sql:
        texts = [self.text(argument) for argument in arguments]
        return self._atom(f"{function}({', '.join(texts)})")

    def _atom(self, text: str) -> Sql:
        return Sql(text, _ATOM, self.dialect)

    def _without_underflow(self, score: Sql, low: float, high: float) -> tuple[Sql, float, float]:
        """A score and range whose differences are 0, or too large for products to underflow.

        Only near an end at 0 can a difference be too small. Adding and subtracting a unit of 1e-100
        of the range rounds scores there to multiples of 1e-116 of the range, and leaves larger
        scores as they are.
        """
        if not self.dialect.raises_on_underflow:
            return score, low, high
        unit = max(1e-100 * (high - low), 1e-300)
        # An end closer to 0 than this could leave a tiny difference as well.
        smallest_end = 1e20 * unit
        near_zero = False
        if abs(low) < smallest_end:
            low, near_zero = 0.0, True
        if abs(high) < smallest_end:
            high, near_zero = 0.0, True
        if not near_zero:
            return score, low, high
        return score.rounded_to(unit), low, high
