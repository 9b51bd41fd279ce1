"""What a check of a table reports."""

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How serious a finding is."""

    ok = "ok"
    note = "note"
    warning = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check of a table."""

    subject: str
    severity: Severity
    message: str


def ok(subject: str, message: str) -> Finding:
    """A check that the table passed."""
    return Finding(subject, Severity.ok, message)


def note(subject: str, message: str) -> Finding:
    """Something to know about the table."""
    return Finding(subject, Severity.note, message)


def warning(subject: str, message: str) -> Finding:
    """Something that makes results wrong or uncertain."""
    return Finding(subject, Severity.warning, message)
