"""JSON read as data and checked field by field, with a digest to tell damage from data."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from calibrank.errors import DataError


def digest_of(document: Mapping[str, Any]) -> str:
    """A digest of a document's content, to tell damage from data."""
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Fields:
    """One JSON object being read: every field must be there, of its type, and nothing else."""

    where: str
    values: Mapping[str, Any]

    @classmethod
    def parse(cls, where: str, text: str) -> "Fields":
        try:
            values = json.loads(text, parse_constant=_reject)
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"{where} must be JSON, got damaged text or something else: {error}. Save the map again."
            ) from None
        return cls(where, _object(where, values))

    def only(self, *names: str) -> None:
        """Refuse unknown fields: they may change the meaning of known ones."""
        for name in self.values:
            if name not in names:
                raise DataError(
                    f"{self.where} must hold only {', '.join(names)}, got field {name!r}."
                )

    def child(self, name: str) -> "Fields":
        return Fields(f"{self.where}, {name}", _object(f"{self.where}, {name}", self._get(name)))

    def children(self, name: str) -> list["Fields"]:
        where = f"{self.where}, {name}"
        return [
            Fields(where, _object(where, inner))
            for inner in self._typed(name, list, "a list of objects")
        ]

    def holds(self, name: str) -> bool:
        """Whether an optional part is there; maps that were saved before it existed do not name it."""
        return self.values.get(name) is not None

    def text(self, name: str) -> str:
        return str(self._typed(name, str, "text"))

    def flag(self, name: str) -> bool:
        return bool(self._typed(name, bool, "true or false"))

    def count(self, name: str) -> int:
        value = self._typed(name, int, "a whole number")
        if isinstance(value, bool) or value < 0:
            raise self._wrong(name, "a whole number, 0 or more", value)
        return int(value)

    def number(self, name: str) -> float:
        value = self._get(name)
        if not _is_number(value):
            raise self._wrong(name, "a finite number", value)
        return float(value)

    def optional(self, name: str) -> float | None:
        return None if self._get(name) is None else self.number(name)

    def numbers(self, name: str) -> list[float]:
        values = self._typed(name, list, "a list of numbers")
        for value in values:
            if not _is_number(value):
                raise self._wrong(name, "a list of finite numbers", value)
        return [float(value) for value in values]

    def texts(self, name: str) -> list[str]:
        values = self._typed(name, list, "a list of texts")
        if not all(isinstance(value, str) for value in values):
            raise self._wrong(name, "a list of texts", values)
        return list(values)

    def _typed(self, name: str, kind: type, words: str) -> Any:
        value = self._get(name)
        if not isinstance(value, kind):
            raise self._wrong(name, words, value)
        return value

    def _get(self, name: str) -> Any:
        if name not in self.values:
            raise DataError(
                f"{self.where} must hold {name!r}, which is missing. Save the map again."
            )
        return self.values[name]

    def _wrong(self, name: str, words: str, value: Any) -> DataError:
        return DataError(f"{self.where}, {name} must be {words}, got {value!r}.")


def _object(where: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise DataError(f"{where} must be a JSON object, got {type(value).__name__}.")
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _reject(constant: str) -> float:
    raise ValueError(f"{constant} is not a JSON number")
