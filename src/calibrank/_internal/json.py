"""Read JSON as plain data, checking every field, and detect changed files by a digest."""

import hashlib
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, is_dataclass
from dataclasses import fields as dataclass_fields
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

import numpy as np

from calibrank._internal.arguments import shown
from calibrank.errors import DataError

Record = TypeVar("Record")


def digest_of(document: Mapping[str, Any]) -> str:
    """The SHA-256 digest of a JSON document; it does not depend on whitespace or key order."""
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()


def digest_of_rows(*columns: Any) -> str:
    """The digest of rows of numbers, in whatever order they come."""
    table = np.column_stack([np.asarray(column, dtype=np.float64) for column in columns])
    ordered = table[np.lexsort(table.T[::-1])]
    return "sha256:" + hashlib.sha256(np.ascontiguousarray(ordered).tobytes()).hexdigest()


LARGEST_DOCUMENT = 2**28
"""In bytes. The largest map, of a hundred thousand segments, takes a tenth of it."""


def read_document(path: Path, remedy: str) -> str:
    """The text of a JSON file, whose size is checked before it is read."""
    size = path.stat().st_size
    if size > LARGEST_DOCUMENT:
        raise DataError(path, f"be JSON of at most {LARGEST_DOCUMENT:,} bytes", f"{size:,}", remedy)
    try:
        # Some editors start a file with a byte order mark.
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            path, "be JSON in UTF-8", f"another byte at {error.start:,}", remedy
        ) from None


def parse_json(
    where: str, text: str, remedy: str, parse_constant: Callable[[str], float] | None = None
) -> Any:
    """The content of JSON text; a `DataError` that names `where` says what is wrong with it.

    `parse_constant` takes NaN and Infinity, which JSON does not have; by default they are refused.
    """
    try:
        return json.loads(
            text,
            parse_constant=parse_constant or _reject_constant,
            object_pairs_hook=_without_duplicates,
        )
    except RecursionError:
        reason = "too many levels of brackets"
    except ValueError as error:
        # Python refuses to parse integers of more digits, with advice that is not for users.
        is_number = "integer string conversion" in str(error)
        reason = "a number with thousands of digits" if is_number else str(error)
    raise DataError(where, "be JSON", f"damaged text or another format: {reason}", remedy)


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of one JSON object; reading a missing or mistyped field raises a `DataError`.

    `where` names the object in error messages, for example "map.json, record".
    """

    where: str
    values: Mapping[str, Any]
    remedy: str = "Save the map again."

    @classmethod
    def parse(cls, where: str, text: str, remedy: str = "Save the map again.") -> "Fields":
        """Parse JSON text that holds one object."""
        values = parse_json(where, text, remedy)
        return cls(where, _require_object(where, values, remedy), remedy)

    def only(self, *names: str) -> None:
        """Refuse unknown fields: they may change the meaning of known ones."""
        for name in self.values:
            if name not in names:
                otherwise = self.remedy[:1].lower() + self.remedy[1:]
                raise DataError(
                    self.where,
                    f"hold only {', '.join(names)}",
                    f"field {shown(name)}",
                    (f"If a newer calibrank wrote it, upgrade calibrank; otherwise {otherwise}"),
                )

    def holds(self, name: str) -> bool:
        """Whether an optional field is present; files of older versions lack the newer ones."""
        return self.values.get(name) is not None

    def without(self, *names: str) -> "Fields":
        """The other fields of the object."""
        values = {name: value for name, value in self.values.items() if name not in names}
        return Fields(self.where, values, self.remedy)

    def child(self, name: str) -> "Fields":
        """A field that is an object itself."""
        where = f"{self.where}, {name}"
        return Fields(where, _require_object(where, self._get(name), self.remedy), self.remedy)

    def children(self, name: str) -> list["Fields"]:
        """A field that is a list of objects."""
        where = f"{self.where}, {name}"
        objects = self._typed(name, list, "a list of objects")
        checked = [_require_object(where, each, self.remedy) for each in objects]
        return [Fields(where, each, self.remedy) for each in checked]

    def text(self, name: str) -> str:
        return str(self._typed(name, str, "a string"))

    def texts(self, name: str) -> list[str]:
        values = self._typed(name, list, "a list of strings")
        if not all(isinstance(value, str) for value in values):
            raise self._wrong(name, "a list of strings", values)
        return list(values)

    def lists_of_texts(self, name: str) -> list[tuple[str, ...]]:
        lists = self._typed(name, list, "a list of lists of strings")
        for each in lists:
            if not isinstance(each, list) or not all(isinstance(value, str) for value in each):
                raise self._wrong(name, "a list of lists of strings", each)
        return [tuple(each) for each in lists]

    def flag(self, name: str) -> bool:
        return bool(self._typed(name, bool, "true or false"))

    def count(self, name: str) -> int:
        value = self._typed(name, int, "a whole number")
        if isinstance(value, bool) or value < 0:  # Python's booleans are integers
            raise self._wrong(name, "a whole number, 0 or more", value)
        return int(value)

    def counts(self, name: str) -> list[int]:
        values = self._typed(name, list, "a list of whole numbers")
        for value in values:
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise self._wrong(name, "a list of whole numbers, 0 or more", value)
        return list(values)

    def number(self, name: str) -> float:
        value = self._get(name)
        if not _is_number(value):
            raise self._wrong(name, "a finite number", value)
        return float(value)

    def optional(self, name: str) -> float | None:
        """A field that is a finite number or null."""
        if self._get(name) is None:
            return None
        return self.number(name)

    def numbers(self, name: str) -> list[float]:
        values = self._typed(name, list, "a list of numbers")
        for value in values:
            if not _is_number(value):
                raise self._wrong(name, "a list of finite numbers", value)
        return [float(value) for value in values]

    def build(self, kind: type[Record]) -> Record:
        """A dataclass of plain values, lists and other dataclasses, by the types of its fields.

        A field that is absent or null has its default: files of older versions lack newer ones.
        """
        hints = get_type_hints(kind)
        self.only(*hints)
        given = {}
        for each in dataclass_fields(cast("Any", kind)):
            is_optional = each.default is not MISSING
            if not is_optional or self.holds(each.name):
                given[each.name] = self._typed_as(each.name, hints[each.name])
        return kind(**given)

    def _typed_as(self, name: str, hint: Any) -> Any:
        arguments = get_args(hint)
        if NoneType in arguments:
            if self._get(name) is None:
                return None
            return self._typed_as(name, arguments[0])
        if get_origin(hint) is tuple:
            return self._tuple(name, arguments)
        if is_dataclass(hint):
            return self.child(name).build(cast("type", hint))
        readers = {int: self.count, float: self.number, str: self.text, bool: self.flag}
        return readers[hint](name)

    def _tuple(self, name: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        inner = arguments[0]
        if is_dataclass(inner):
            return tuple(child.build(cast("type", inner)) for child in self.children(name))
        values = self.texts(name) if inner is str else self.numbers(name)
        if Ellipsis not in arguments and len(values) != len(arguments):
            raise self._wrong(name, f"a list of {len(arguments)}", values)
        return tuple(values)

    def _get(self, name: str) -> Any:
        if name not in self.values:
            raise DataError(self.where, f"hold {name!r}", "none", self.remedy)
        return self.values[name]

    def _typed(self, name: str, kind: type, description: str) -> Any:
        value = self._get(name)
        if not isinstance(value, kind):
            raise self._wrong(name, description, value)
        return value

    def _wrong(self, name: str, description: str, value: Any) -> DataError:
        return DataError(f"{self.where}, {name}", f"be {description}", shown(value), self.remedy)


def _require_object(where: str, value: Any, remedy: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise DataError(where, "be a JSON object", shown(value), remedy)
    return value


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    # NaN, infinity and integers that no float can hold all fail this comparison.
    return abs(value) <= sys.float_info.max


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # Python keeps the last of two equal keys and other readers the first: the text is ambiguous.
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {shown(twice)} occurs twice")
    return values


def _reject_constant(constant: str) -> float:
    # Python's parser accepts NaN and Infinity, which JSON does not have.
    raise ValueError(f"{constant} is not a JSON number")
