"""Maps as one SQL expression, without user-defined functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

from calibrank._internal.arguments import label, shown, text
from calibrank._internal.rules import COLUMN_RULES, ColumnRule
from calibrank._internal.segment_keys import Key
from calibrank._internal.validation import Floats
from calibrank.errors import DataError
from calibrank.maps.calibration_map import CalibrationMap, require_map
from calibrank.maps.targets.numpy import FloatTarget
from calibrank.maps.targets.sql_dialects import DIALECTS, Dialect
from calibrank.maps.targets.target import (
    Expression,
    Inner,
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
# How the numbers of BIGINT are written, and some that are larger.
_WHOLE = re.compile("0|-?[1-9][0-9]{0,18}")
# Characters to divide texts by: control characters, and others that have no meaning either.
_MARKS = range(1, 9)
_MORE_MARKS = range(0xE000, 0xF900)

# Operators and right operands that change nothing.
_WITHOUT_EFFECT = (("+", 0), ("-", 0), ("/", 1))

# How tightly the outermost operator of an expression binds.
_SUM, _PRODUCT, _ATOM = range(3)


def to_sql(fitted: CalibrationMap, dialect: str, score: str = "score") -> str:
    """The probability as one SQL expression of a column.

    It is NULL where the score is NULL, NaN or beyond +-1e30. Dialects are spark, duckdb,
    postgresql, sqlite, bigquery, snowflake, clickhouse and trino. The name of the column is always
    quoted. Terms read their columns under the names they had in the fit, with the same rule: the
    result is NULL where one of them is NULL or no valid number. A level is the text of its column,
    as in the fit: 1.0 is 1, and a boolean true or false. Where an engine cannot tell (booleans in
    SQLite; decimals in BigQuery and Snowflake), write the column as such text yourself.

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
    """SQL text with arithmetic that writes longer text.

    Operations that change nothing (plus 0, times 1) are left out.
    """

    text: str
    precedence: int
    dialect: Dialect

    def binary(self, left: Sql | float, operator: str, right: Sql | float) -> Sql:
        if operator == "*" and not isinstance(right, Sql):
            left, right = right, left
        if (operator, left) in (("+", 0), ("*", 1)) or (operator, right) in _WITHOUT_EFFECT:
            return self
        if (operator, left) == ("*", -1):
            return self._new(f"-{self._operand(self, _ATOM)}", _PRODUCT)
        if operator == "*" and left is right:
            return self._new(f"POWER({self.text}, {self._operand(2, _ATOM)})", _ATOM)
        if operator in "+-" and not isinstance(right, Sql) and right < 0:
            operator, right = "-+"[operator == "-"], -right
        precedence = _SUM if operator in "+-" else _PRODUCT
        # What follows an operator must bind more tightly than it.
        texts = self._operand(left, precedence), self._operand(right, precedence + 1)
        return self._new(f" {operator} ".join(texts), precedence)

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

    def input(self, term: Term) -> Sql | list[str]:
        """A numeric column, or the columns of a level as `by_level` takes them."""
        if term.role == "level":
            return [self.dialect.name(column) for column in term.columns]
        return self.column(term.columns[0])

    def is_valid(self, x: Sql, rule: ColumnRule) -> str:
        return f"{x.text} BETWEEN {self.text(rule.low)} AND {self.text(rule.high)}"

    def is_level(self, x: Sequence[str], count: int) -> str:
        return " AND ".join([f"({self._key(column)}) IS NOT NULL" for column in x])

    def by_level(self, x: Sequence[str], keys: Sequence[Key], values: Floats) -> Sql:
        """One CASE per column, nested; where it has many branches, by comparisons first.

        Where an engine can look up a key in a table, many keys are one.
        """
        if self.dialect.look_up and len(keys) > _MOST_BRANCHES:
            texts = [self.text(values[0]), *map(repr, values[1:].tolist())]
            return self._atom(self._looked_up(x, keys, texts, f"{self.free['v']}::DOUBLE"))
        children = group_by_parent(keys)

        def case(parent: Key, fallback: float) -> str:
            if parent not in children:
                return self.text(fallback)
            branches = []
            for name, node in children[parent]:
                branches.append((name, case((*parent, name), values[node])))
            return self._choice(self._key(x[len(parent)]), sorted(branches), self.text(fallback))

        return self._atom(case((), values[0]))

    def scaled_by_level(
        self, curve: Sql, x: Sequence[str], keys: Sequence[Key], intercepts: Floats, slopes: Floats
    ) -> Sql:
        """One join for both numbers, where an engine can look up a pair of them."""
        if not self.dialect.scaled or len(keys) <= _MOST_BRANCHES:
            return super(SqlTarget, self).scaled_by_level(curve, x, keys, intercepts, slopes)
        pairs = [f"[{self.text(slopes[0])}, {self.text(intercepts[0])}]"]
        for slope, intercept in zip(slopes[1:].tolist(), intercepts[1:].tolist(), strict=True):
            pairs.append(f"{slope},{intercept}")
        found = self._looked_up(x, keys, pairs, self.dialect.pair.format(**self.free))
        return self._atom(self.dialect.scaled.format(curve=curve.text, found=found))

    def _key(self, column: str) -> str:
        """The text that stands for the level of a column."""
        return self.dialect.as_text.replace("{}", column)

    def _looked_up(
        self, x: Sequence[str], keys: Sequence[Key], values: Sequence[str], value: str
    ) -> str:
        """One table per number of columns; what it does not have, the one of fewer columns may."""
        used = set(chain.from_iterable(chain.from_iterable(keys)))
        unused = [mark for mark in map(chr, (*_MARKS, *_MORE_MARKS)) if mark not in used]
        mark, joint = unused[:2]
        found = values[0]
        for depth in range(1, len(x) + 1):
            table = {}
            for key, number in zip(keys, values[1:], strict=True):
                if len(key) == depth:
                    table[joint.join(key)] = number
            if not table:
                continue
            search = partial(self._search, mark=mark, value=value, default=found)
            if depth == 1 and self.dialect.is_number:
                found = self._searched_by_type(x[0], table, search)
            else:
                texts = [f"({self._key(column)})" for column in x[:depth]]
                found = search(table, f" || {self.dialect.string(joint)} || ".join(texts))
        return found

    def _searched_by_type(
        self, column: str, table: Mapping[str, str], search: Callable[..., str]
    ) -> str:
        """One search for numbers, as BIGINT, and one for texts; the planner drops one of them.

        A cast of a column to the type that it has is the column itself. DuckDB joins it directly,
        and groups the rows by any other key before the join.
        """
        is_number = self.dialect.is_number.replace("{}", column)
        texts = search(table, f"{column}::VARCHAR", "VARCHAR", f"NOT {is_number}")
        numbers = {key: value for key, value in table.items() if _is_bigint(key)}
        if not numbers:
            return texts
        # The cast would round other numbers, but `is_level` excludes them.
        found = search(numbers, f"TRY_CAST({column} AS BIGINT)", "BIGINT", is_number)
        return f"CASE WHEN {is_number} THEN {found} ELSE {texts} END"

    def _search(
        self,
        table: Mapping[str, str],
        key: str,
        kind: str = "VARCHAR",
        condition: str = "TRUE",
        *,
        mark: str,
        value: str,
        default: str,
    ) -> str:
        """The value that a table has for a key."""
        return self.dialect.look_up.format(
            keys=self.dialect.string(mark.join(table)),
            mark=self.dialect.string(mark),
            values=f"'{';'.join(table.values())}'",
            key=key,
            kind=kind,
            condition=condition,
            value=value,
            default=default,
            **self.free,
        )

    def _choice(self, column: str, branches: Sequence[tuple[str, str]], fallback: str) -> str:
        """The text of the branch that a column names; branches are in the order of their names."""
        if len(branches) <= _MOST_BRANCHES:
            cases = [f"WHEN {self.dialect.string(name)} THEN {text}" for name, text in branches]
            return f"CASE {column} {' '.join(cases)} ELSE {fallback} END"
        middle = len(branches) // 2
        below = self._choice(column, branches[:middle], fallback)
        above = self._choice(column, branches[middle:], fallback)
        name = self.dialect.string(branches[middle][0])
        return f"CASE WHEN ({column}) < {name} THEN {below} ELSE {above} END"

    def text(self, value: Sql | float) -> str:
        """The SQL of an expression or a number."""
        return value.text if isinstance(value, Sql) else self.dialect.number(float(value))

    def over_range(self, score: Sql, low: float, high: float, inner: Inner) -> Sql:
        """One branch each below, within and above the range, which is faster than their sum."""
        ends = []
        for end, slope in zip((low, high), inner.slopes(low, high), strict=True):
            ends.append(((score - end) * slope + inner.formula(FloatTarget(), end, low, high)).text)
        inside = self.text(inner.formula(self, score, low, high))
        return self._atom(
            f"CASE WHEN {score.text} < {self.text(low)} THEN {ends[0]} "
            f"WHEN {score.text} < {self.text(high)} THEN {inside} ELSE {ends[1]} END"
        )

    def log(self, x: Sql) -> Sql:
        return self._call("LN", x)

    def softplus(self, x: Sql) -> Sql:
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
        bounded = self.maximum(self.minimum(x, _LARGEST_EXPONENT), -_LARGEST_EXPONENT)
        return 1.0 / (1.0 + self._call("EXP", bounded * -1.0))

    def minimum(self, x: Sql, bound: float) -> Sql:
        return self._call(self.dialect.least, x, bound)

    def maximum(self, x: Sql, bound: float) -> Sql:
        return self._call(self.dialect.greatest, x, bound)

    def where_valid(self, score: Sql, formula: Unary, conditions: Sequence[str] = ()) -> Sql:
        valid = " AND ".join([self.is_valid(score, COLUMN_RULES["score"]), *conditions])
        return self._atom(f"CASE WHEN {valid} THEN {self.text(formula(score))} END")

    def steps(self, score: Sql, edges: Sequence[float], values: Sequence[float]) -> Sql:
        return self._tree(score, edges, [self.text(value) for value in values])

    def lines(self, score: Sql, edges: Sequence[float], lines: Lines) -> Sql:
        """One tree whose leaves are straight lines, instead of one tree per number."""
        leaves = []
        for origin, value, slope in zip(*lines, strict=True):
            leaves.append(self.text((score - origin) * slope + value))
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


def _is_bigint(key: str) -> bool:
    return bool(_WHOLE.fullmatch(key)) and -(2**63) <= int(key) < 2**63
