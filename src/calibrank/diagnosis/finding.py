"""What a check of a table reports."""

from dataclasses import dataclass
from enum import StrEnum

from calibrank.errors import Remedy


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
    remedy: Remedy = ""


def ok(subject: str, message: str) -> Finding:
    """A check that the table passed."""
    return Finding(subject, Severity.ok, message)


def note(subject: str, message: str, remedy: Remedy = "") -> Finding:
    """Something to know about the table."""
    return Finding(subject, Severity.note, message, remedy)


def warning(subject: str, message: str, remedy: Remedy = "") -> Finding:
    """Something that makes results wrong or uncertain."""
    return Finding(subject, Severity.warning, message, remedy)
