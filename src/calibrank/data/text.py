"""Text files of numbers: read fast when they are right, and searched line by line when they are not."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrank.errors import DataError


@dataclass(frozen=True, slots=True)
class Numbers:
    """A file of lines of `columns` numbers, each obeying a rule that `words` say; `describe` says what a line holds."""

    path: Path
    columns: int
    rule: Callable[[npt.NDArray[Any]], npt.NDArray[np.bool_]]
    words: str
    delimiter: str | None = None

    def read(self) -> npt.NDArray[np.float64]:
        """All lines as rows of a matrix."""
        try:
            values = np.loadtxt(self.path, delimiter=self.delimiter, ndmin=2, comments=None)
        except ValueError:
            values = None
        if (
            values is not None
            and values.size
            and values.shape[1] == self.columns
            and self.rule(values).all()
        ):
            return values
        raise self._trouble()

    def _trouble(self) -> DataError:
        """The first line that is wrong, in words."""
        lines = self.path.read_text(errors="replace").splitlines()
        for number, line in enumerate(lines, 1):
            cells = line.split(self.delimiter) if line.strip() else []
            if cells and len(cells) != self.columns:
                return DataError(
                    f"{self.path}, line {number} must hold {self.columns} numbers, got {len(cells)}."
                )
            for cell in cells:
                if not self._is_fine(cell):
                    return DataError(
                        f"{self.path}, line {number} must hold {self.words}, got {cell.strip()!r}."
                    )
        for number, line in enumerate(lines, 1):
            row = (
                np.array([[float(cell) for cell in line.split(self.delimiter)]])
                if line.strip()
                else None
            )
            if row is not None and not self.rule(row).all():
                return DataError(
                    f"{self.path}, line {number} must hold {self.words}, got {line.strip()[:80]!r}."
                )
        return DataError(
            f"{self.path} must hold lines of {self.columns} numbers, got {len(lines)} lines."
        )

    def _is_fine(self, cell: str) -> bool:
        try:
            float(cell)
        except ValueError:
            return False
        return True


def find_file(folder: Path, name: str, where: str) -> Path:
    """A file of a dataset, in the folder or below it; `where` says how to come by it."""
    found = sorted(folder.rglob(name)) if folder.is_dir() else []
    if not found:
        raise DataError(f"{folder} must hold {name}, which is not there. {where}")
    return found[0]
