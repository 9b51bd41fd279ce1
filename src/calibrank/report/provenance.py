"""Where a report comes from: what it read, with what, and how to make it again."""

import hashlib
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from calibrank.report.ledger import Ledger

_PACKAGES = ("numpy", "scipy", "pyarrow")


def fingerprint_files(files: Sequence[Path]) -> str:
    """A digest of the bytes of files, in order."""
    whole = hashlib.sha256()
    for file in files:
        with file.open("rb") as opened:
            whole.update(hashlib.file_digest(opened, "sha256").digest())
    return "sha256:" + whole.hexdigest()


def fingerprint_rows(ledger: Ledger) -> str:
    """A digest of the numbers themselves, where there are no files."""
    whole = hashlib.sha256()
    for column in (ledger.scores, ledger.evidence.positive, ledger.evidence.total):
        whole.update(np.ascontiguousarray(column).tobytes())
    return "sha256:" + whole.hexdigest()


def versions() -> dict[str, str]:
    """What computed the numbers."""
    from calibrank import __version__  # noqa: PLC0415  (the package is loaded by then, and not before)

    found = {"calibrank": __version__, "Python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def provenance(
    ledger: Ledger, source: str, fingerprint: str, command: str, evidence: str
) -> dict[str, Any]:
    """All of it, as the page shows it."""
    return {
        "source": source,
        "fingerprint": fingerprint,
        "rows": ledger.rows_in_table,
        "users": None if ledger.users is None else len(ledger.users.names),
        "items": None if ledger.items is None else len(ledger.items.names),
        "evidence": evidence,
        "versions": versions(),
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": command,
    }
