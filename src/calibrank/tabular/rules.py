"""What each column of a row must be, and what becomes of rows that break a rule."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrank._validation import LARGEST_SCORE
from calibrank.errors import DataError
from calibrank.tables import Index
from calibrank.tabular.read import Batch, arrow, names_of


@dataclass(slots=True)
class Rules:
    """What each column of a row must be; bad rows stop the work, or are left out and counted."""

    skip: bool
    skipped: dict[str, int] = field(default_factory=dict)
    counting: Any = field(default_factory=Lock, repr=False, compare=False)

    def good_rows(
        self, batch: Batch, columns: dict[str, str], ids: Sequence[str] = ()
    ) -> npt.NDArray[np.bool_] | None:
        """Which rows obey every rule (None: all), for columns of numbers given as role: name, and columns of ids."""
        good: npt.NDArray[np.bool_] | None = None
        for role, name in columns.items():
            rule, values = _RULES[role], batch.numbers(name)
            if rule.holds_for_all(values):
                continue
            fine = rule.holds(values)
            if not fine.all():
                self._report(batch, role, name, rule.words, values, fine)
                good = fine if good is None else good & fine
        for name in ids:
            column = batch.rows.column(name)
            if column.null_count:
                fine = np.array(column.is_valid().to_pylist())
                self._report(batch, name, name, "be an id", np.array(["none"] * len(fine)), fine)
                good = fine if good is None else good & fine
        return good

    def known_rows(
        self, batch: Batch, name: str, index: Index, good: npt.NDArray[np.bool_] | None
    ) -> npt.NDArray[np.bool_] | None:
        """Which rows name an id that an index knows (None: all); rows that are bad already are not asked."""
        asked = np.arange(batch.rows.num_rows) if good is None else np.flatnonzero(good)
        names = names_of(batch.ids(name).take(arrow(asked)))
        known = np.ones(batch.rows.num_rows, dtype=bool)
        known[asked] = index.find(name, names)[1]
        if known.all():
            return None
        everyone = np.empty(len(known), dtype=object)
        everyone[asked] = names
        self._report(batch, name, name, "be known to the model", everyone, known)
        return known

    def _report(
        self,
        batch: Batch,
        role: str,
        name: str,
        words: str,
        values: npt.NDArray[Any],
        fine: npt.NDArray[np.bool_],
    ) -> None:
        if self.skip:
            with self.counting:
                self.skipped[role] = self.skipped.get(role, 0) + int((~fine).sum())
            return
        row = int(np.argmin(fine))
        mend = "Turn ratings into likes first, e.g. rating > 3"
        skip = "Mend the table, or leave such rows out with --on-bad-rows skip"  # ratings of 1 would stay as likes
        remedy = mend if role == "label" and values.dtype.kind in "iu" else skip
        raise DataError(
            f"{batch.file}, row {batch.first + row}: {name} must {words}, got {values[row]}. {remedy}."
        )


@dataclass(frozen=True, slots=True)
class _Rule:
    """Numbers from low to high; of them, perhaps only the two ends."""

    low: float
    high: float
    words: str
    only_ends: bool = False

    def holds_for_all(self, values: npt.NDArray[Any]) -> bool:
        """Whether the extremes alone prove it: one fast look at each column of a good table."""
        sure = not self.only_ends or values.dtype.kind in "iu"
        return bool(sure and values.size and self.low <= values.min() and values.max() <= self.high)

    def holds(self, values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Row by row; a missing value never does."""
        if self.only_ends:
            return (values == self.low) | (values == self.high)
        return (values >= self.low) & (values <= self.high)


_RULES = {
    "score": _Rule(-LARGEST_SCORE, LARGEST_SCORE, "be finite and within +-1e30"),
    "label": _Rule(0, 1, "be 0 or 1", only_ends=True),
    "propensity": _Rule(np.nextafter(0, 1), 1, "lie in (0, 1]"),
    "probability": _Rule(0, 1, "lie in [0, 1]"),
    "weight": _Rule(0, np.finfo(np.float64).max, "be finite and not negative"),
}
