"""Errors and warnings that calibrank raises on purpose.

An error is data: what it is about, the rule, the value, the row, and what to do. Its text is made
from these fields once, where it is shown.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Setting:
    """A parameter that a remedy names: an argument in Python, an option on the command line."""

    name: str
    value: str = ""

    def __str__(self) -> str:
        return f"{self.name}={self.value!r}" if self.value else self.name


Remedy: TypeAlias = str | tuple[str | Setting, ...]
"""Sentences that say what to do; a tuple is one text in parts, some of them settings."""


def remedy_text(remedy: Remedy, show: Callable[[Setting], str | None] = str) -> str:
    """A remedy as text, or "" if it names a setting that is not there, which `show` says.

    >>> remedy_text(("Leave such rows out with ", Setting("on_bad_rows", "skip"), "."))
    "Leave such rows out with on_bad_rows='skip'."
    """
    if isinstance(remedy, str):
        return remedy
    parts = [show(part) if isinstance(part, Setting) else part for part in remedy]
    return "" if None in parts else "".join(map(str, parts))


class CalibrankError(Exception):
    """Base class of all calibrank errors: catch it to catch every one of them.

    Its fields say what is wrong: `subject` must `rule`, `got` a value at `row`; and `remedies`.
    """

    def __init__(
        self,
        subject: object,
        rule: str = "",
        got: object = "",
        remedy: Remedy | list[Remedy] = "",
        row: int | None = None,
    ) -> None:
        # What a copy in another process is made of.
        super().__init__(subject, rule, got, remedy, row)
        self.subject = str(subject)
        self.rule = rule
        self.got = str(got)
        self.row = row
        self.remedies: list[Remedy] = remedy if isinstance(remedy, list) else [remedy]

    def __str__(self) -> str:
        return self.text()

    def text(self, show: Callable[[Setting], str | None] = str, subject: str | None = None) -> str:
        """The error as sentences; `show` words a setting, or returns None where there is none.

        >>> DataError("label", "be 0 or 1", got=3, row=7, remedy="Drop it.").text()
        'label must be 0 or 1, got 3 at row 7. Drop it.'
        """
        statement = self.subject if subject is None else subject
        statement += f" must {self.rule}" * bool(self.rule)
        statement += f", got {self.got}" * bool(self.got)
        statement += "" if self.row is None else f" at row {self.row}"
        texts = [remedy_text(remedy, show) for remedy in self.remedies]
        return " ".join([f"{statement}.", *filter(None, texts)])

    def within(self, where: str, kind: "type[CalibrankError] | None" = None) -> "CalibrankError":
        """The same error with the name of a file or option before its subject."""
        make = type(self) if kind is None else kind
        return make(f"{where}: {self.subject}", self.rule, self.got, self.remedies, self.row)


class DataError(CalibrankError, ValueError):
    """Input breaks a rule."""


class FitError(CalibrankError, ValueError):
    """The data are valid but no finite best fit exists."""


class MissingExtraError(CalibrankError, ImportError):
    """An optional dependency is not installed; the remedy is the command that installs it."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"{package} is not installed",
            remedy=(
                f"Run: pip install 'calibrank[{extra}]' (in a checkout: pip install '.[{extra}]')"
            ),
        )
        self.args = (package, extra)


class CalibrankWarning(UserWarning):
    """Base class of all calibrank warnings: filter it to filter every one of them."""


class FlatMapWarning(CalibrankWarning):
    """The fitted map hardly rises, or a few outlying scores decide on it; see the message."""


class SmallTableWarning(CalibrankWarning):
    """A table was too small to choose a method on; the message says which one was fitted."""


class AssumedRateWarning(CalibrankWarning):
    """Intervals of a map whose base rate is assumed leave out what matters most."""


class PooledScoresWarning(CalibrankWarning):
    """Scores that differ were pooled so coarsely that probabilities may be off; see the message."""


class DroppedRowsWarning(CalibrankWarning):
    """Rows were dropped because the model gives them no score; the message says how many."""


class ScoreShiftWarning(CalibrankWarning):
    """New scores do not look like those that a map was fitted on; the message says how far."""
