"""Read JSON as plain data, checking every field, and detect changed files by a digest."""

import hashlib
import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, is_dataclass, replace
from dataclasses import fields as dataclass_fields
from pathlib import Path
from types import NoneType
from typing import Any, ClassVar, Self, TypeVar, cast, get_args, get_origin, get_type_hints

import numpy as np

from calibrank._internal.arguments import shown
from calibrank.errors import DataError

_NEWER = "If a newer calibrank wrote it, upgrade calibrank"
Record = TypeVar("Record")
Kind = TypeVar("Kind")


def digest_of(document: Mapping[str, Any]) -> str:
    """The SHA-256 digest of a JSON document; it does not depend on whitespace or key order."""
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()


def digest_of_rows(*columns: Any) -> str:
    """The digest of rows of numbers, in whatever order they come."""
    table = np.column_stack([np.asarray(column, dtype=np.float64) for column in columns])
    ordered = table[np.lexsort(table.T[::-1])]
    return "sha256:" + hashlib.sha256(np.ascontiguousarray(ordered).tobytes()).hexdigest()


_HASHES = 128
_MOST_REPEATED = 0.1


def sketch_of_rows(*columns: Any, within: Sequence[int] | None = None) -> tuple[int, ...]:
    """The smallest hashes of rows of numbers: those of a part are found in those of the whole.

    Empty if more than a tenth of the first column is repeated: equal rows are then chance. With
    `within`, a sketch of other rows, all hashes that are small enough to be in it.
    """
    rows = [np.asarray(column, dtype=np.float64) for column in columns]
    if within is None and len(np.unique(rows[0])) < (1 - _MOST_REPEATED) * len(rows[0]):
        return ()
    mixed = np.zeros(len(rows[0]), dtype=np.uint64)
    for row in rows:
        # The finalizer of SplitMix64; adding 0 makes -0 and 0 equal.
        mixed = (mixed ^ (row + 0.0).view(np.uint64)) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    # Readers of JSON in other languages keep 53 bits of a number.
    found = np.unique(mixed >> np.uint64(11))
    if within is None:
        found = found[:_HASHES]
    elif len(within) == _HASHES:
        found = found[found <= within[-1]]
    return tuple(found.tolist())


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


def encoded(what: str, text: str) -> bytes:
    """The bytes of a JSON document; a `DataError` if it is larger than `read_document` reads."""
    content = text.encode()
    if len(content) > LARGEST_DOCUMENT:
        rule = f"be JSON of at most {LARGEST_DOCUMENT:,} bytes"
        raise DataError(what, rule, f"{len(content):,}", "Fit fewer levels or steps.")
    return content


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
                rule = f"hold only {', '.join(names)}"
                remedy = f"{_NEWER}; otherwise {otherwise}"
                raise DataError(self.where, rule, f"field {shown(name)}", remedy)

    def holds(self, name: str) -> bool:
        """Whether an optional field is present; files of older versions lack the newer ones."""
        return self.values.get(name) is not None

    def child(self, name: str) -> "Fields":
        """A field that is an object itself."""
        return self._object(name, self._get(name))

    def children(self, name: str) -> list["Fields"]:
        """A field that is a list of objects."""
        objects = self._get(name)
        if not isinstance(objects, list):
            raise self._wrong(name, "a list of objects", objects)
        return [self._object(name, each) for each in objects]

    def text(self, name: str) -> str:
        return str(self._typed(name, str))

    def texts(self, name: str) -> list[str]:
        return list(self._typed(name, tuple[str, ...]))

    def count(self, name: str) -> int:
        return int(self._typed(name, int))

    def number(self, name: str) -> float:
        return float(self._typed(name, float))

    def numbers(self, name: str) -> list[float]:
        return list(self._typed(name, tuple[float, ...]))

    def build(self, kind: type[Record]) -> Record:
        """A dataclass of plain values, lists and other dataclasses, by the types of its fields.

        A field that is absent has its default: files of older versions lack newer ones.
        """
        hints = get_type_hints(kind)
        own = dataclass_fields(cast("Any", kind))
        self.only(*[each.name for each in own])
        given = {}
        for each in own:
            is_required = each.default is MISSING and each.default_factory is MISSING
            if is_required or each.name in self.values:
                given[each.name] = self._typed(each.name, hints[each.name])
        try:
            return kind(**given)
        except DataError as error:
            raise error.within(self.where) from None

    def _typed(self, name: str, hint: Any) -> Any:
        return self._as(name, self._get(name), hint)

    def _as(self, name: str, value: Any, hint: Any) -> Any:
        """A value of a field as the type of an annotation."""
        arguments = get_args(hint)
        if NoneType in arguments:
            return None if value is None else self._as(name, value, arguments[0])
        if is_dataclass(hint):
            fields = self._object(name, value)
            kind = cast("Any", hint)
            return kind.from_fields(fields) if issubclass(kind, Saved) else fields.build(kind)
        if get_origin(hint) is tuple:
            return self._tuple(name, value, arguments)
        if get_origin(hint) is dict:
            entries = self._object(name, value).values.items()
            return {key: self._as(f"{name}, {key}", each, arguments[1]) for key, each in entries}
        if hint is Any:
            return value
        description, _, is_valid = _SCALARS.get(hint, _UNKNOWN)
        if not is_valid(value):
            raise self._wrong(name, description, value)
        return hint(value)

    def _tuple(self, name: str, values: Any, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        inner = arguments[0]
        if is_dataclass(inner):
            return tuple([self._as(name, each.values, inner) for each in self.children(name)])
        _, description, is_valid = _SCALARS[inner]
        wrong = [values]
        if isinstance(values, list):
            wrong = [value for value in values if not is_valid(value)][:1]
        if wrong:
            raise self._wrong(name, f"a list of {description}", wrong[0])
        if Ellipsis not in arguments and len(values) != len(arguments):
            raise self._wrong(name, f"a list of {len(arguments)}", values)
        return tuple(map(get_origin(inner) or inner, values))

    def _get(self, name: str) -> Any:
        if name not in self.values:
            raise DataError(self.where, f"hold {name!r}", "none", self.remedy)
        return self.values[name]

    def _object(self, name: str, value: Any) -> "Fields":
        where = f"{self.where}, {name}"
        return Fields(where, _require_object(where, value, self.remedy), self.remedy)

    def _wrong(self, name: str, description: str, value: Any) -> DataError:
        return DataError(f"{self.where}, {name}", f"be {description}", shown(value), self.remedy)


class Saved:
    """A dataclass that is one of several kinds: JSON has its kind and its fields."""

    kind: ClassVar[str]
    tag: ClassVar[str] = "kind"
    """The name of the field that has the kind."""
    newer: ClassVar[tuple[str, ...]] = ()
    """Fields that are left out where they are None, as older versions did."""

    def content(self) -> dict[str, Any]:
        """The kind and the fields, as JSON."""
        content = {self.tag: self.kind, **_plain_fields(self)}
        return {
            name: value
            for name, value in content.items()
            if value is not None or name not in self.newer
        }

    @classmethod
    def from_fields(cls, fields: Fields) -> Self:
        """Rebuild it from what `content` gave."""
        kind_of(fields, {cls.kind: cls}, cls.tag)
        values = {name: value for name, value in fields.values.items() if name != cls.tag}
        return replace(fields, values=values).build(cls)


def kind_of(fields: Fields, kinds: Mapping[str, Kind], tag: str = "kind") -> Kind:
    """The kind that an object is of."""
    name = fields.text(tag)
    if name not in kinds:
        rule = f"be one of {', '.join(kinds)}"
        raise DataError(f"{fields.where}, {tag}", rule, f"{name!r}", f"{_NEWER}.")
    return kinds[name]


def plain(value: Any) -> Any:
    """A value of dataclasses and tuples as JSON reads it back: the digest depends on neither."""
    if isinstance(value, Saved):
        return value.content()
    if is_dataclass(value):
        return _plain_fields(value)
    if not isinstance(value, tuple | list):
        return value
    # There may be a million numbers or texts.
    is_flat = not value or isinstance(value[0], str | int | float)
    return list(value) if is_flat else [plain(each) for each in value]


def _plain_fields(value: Any) -> dict[str, Any]:
    return {each.name: plain(getattr(value, each.name)) for each in dataclass_fields(value)}


def _require_object(where: str, value: Any, remedy: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise DataError(where, "be a JSON object", shown(value), remedy)
    return value


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    # NaN, infinity and integers that no float can hold all fail this comparison.
    return abs(value) <= sys.float_info.max


def _is_count(value: Any) -> bool:
    # Python's booleans are integers.
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_list_of(is_valid: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda values: isinstance(values, list) and all(map(is_valid, values))


# How a type of an annotation is named, alone and in a list, and which values it has.
_SCALARS: dict[Any, tuple[str, str, Callable[[Any], bool]]] = {
    str: ("a string", "strings", _is_text),
    bool: ("true or false", "booleans", lambda value: isinstance(value, bool)),
    int: ("a whole number, 0 or more", "whole numbers, 0 or more", _is_count),
    float: ("a finite number", "finite numbers", _is_number),
    tuple[str, ...]: ("a list of strings", "lists of strings", _is_list_of(_is_text)),
    tuple[float, ...]: ("a list of numbers", "lists of numbers", _is_list_of(_is_number)),
}
# A field of any other type can only have its default.
_UNKNOWN = ("left out", "", lambda _: False)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # Python keeps the last of two equal keys and other readers the first: the text is ambiguous.
    values = dict(pairs)
    if len(values) < len(pairs):
        twice = Counter([name for name, _ in pairs]).most_common(1)[0][0]
        raise ValueError(f"the key {shown(twice)} occurs twice")
    return values


def _reject_constant(constant: str) -> float:
    # Python's parser accepts NaN and Infinity, which JSON does not have.
    raise ValueError(f"{constant} is not a JSON number")
