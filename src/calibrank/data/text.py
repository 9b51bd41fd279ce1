"""Text files of numbers: parsed in one call, and searched line by line only if that fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrank.errors import DataError


@dataclass(frozen=True, slots=True)
class NumericText:
    """A file whose lines hold `columns` numbers each.

    `is_valid` checks the numbers; `description` says in a message what a line must hold.
    """

    path: Path
    columns: int
    is_valid: Callable[[npt.NDArray[Any]], npt.NDArray[np.bool_]]
    description: str
    delimiter: str | None = None

    def read(self) -> npt.NDArray[np.float64]:
        """All lines as rows of a matrix; an invalid line is an error that names it."""
        try:
            values = np.loadtxt(self.path, delimiter=self.delimiter, ndmin=2, comments=None)
        except ValueError:
            raise self._error() from None
        right_shape = values.size and values.shape[1] == self.columns
        if not right_shape or not self.is_valid(values).all():
            raise self._error()
        return values

    def _error(self) -> DataError:
        """The error that describes the first invalid line."""
        lines = self.path.read_text(encoding="utf-8", errors="replace").splitlines()
        # Lines that cannot be parsed are reported before lines whose numbers are out of range.
        for find_error in (self._parse_error, self._value_error):
            for number, line in enumerate(lines, 1):
                error = find_error(number, line) if line.strip() else None
                if error is not None:
                    return error
        return DataError(
            self.path, f"hold lines of {self.columns} numbers", got=f"{len(lines)} lines"
        )

    def _parse_error(self, number: int, line: str) -> DataError | None:
        cells = line.split(self.delimiter)
        where = f"{self.path}, line {number}"
        if len(cells) != self.columns:
            return DataError(where, f"hold {self.columns} numbers", got=len(cells))
        for cell in cells:
            if not _is_number(cell):
                return DataError(where, f"hold {self.description}", got=f"{cell.strip()!r}")
        return None

    def _value_error(self, number: int, line: str) -> DataError | None:
        values = np.array([[float(cell) for cell in line.split(self.delimiter)]])
        if self.is_valid(values).all():
            return None
        return DataError(
            f"{self.path}, line {number}", f"hold {self.description}", got=f"{line.strip()[:80]!r}"
        )


# Archives hold their files in up to two folders; deeper down lie other things.
_DEPTH = 3


def find_file(folder: Path, name: str, how_to_get: str) -> Path:
    """A file in the folder or below it; `how_to_get` ends the message if it is missing."""
    found = files_below(folder, name)
    if not found:
        raise DataError(folder, f"hold {name}", got="no such file", remedy=how_to_get)
    return found[0]


def files_below(folder: Path, name: str) -> list[Path]:
    """The file of this name in the folder or a few levels below it, if there is one."""
    found: list[Path] = []
    for depth in range(_DEPTH + 1):
        found += sorted(folder.glob("*/" * depth + name))
    if len(found) > 1:
        raise DataError(
            folder,
            f"hold one {name}",
            got=f"{len(found)}, such as {found[0]} and {found[1]}",
            remedy="Name the folder of one of them.",
        )
    return found


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
