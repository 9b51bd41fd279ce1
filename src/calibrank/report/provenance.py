"""Where a report comes from: the data it read, the versions used, and the command to repeat it."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from calibrank.report.rows import ReportRows

_PACKAGES = ("numpy", "scipy", "pyarrow")


def fingerprint_files(files: Sequence[Path]) -> str:
    """Hash the bytes of files, in order."""
    digest = hashlib.sha256()
    # A hash of hashes: where one file ends and the next begins matters too.
    for file in files:
        with file.open("rb") as opened:
            digest.update(hashlib.file_digest(opened, "sha256").digest())
    return f"sha256:{digest.hexdigest()}"


def fingerprint_rows(rows: ReportRows) -> str:
    """Hash the scores and the evidence, for data that come from no file."""
    digest = hashlib.sha256()
    for column in (rows.scores, rows.evidence.positive, rows.evidence.total):
        digest.update(np.ascontiguousarray(column).tobytes())
    return f"sha256:{digest.hexdigest()}"


def versions() -> dict[str, str]:
    """Return the versions of calibrank, Python and the packages that compute the numbers."""
    from calibrank import __version__  # noqa: PLC0415  (at the top it would be a circular import)

    found = {"calibrank": __version__, "Python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def provenance(
    rows: ReportRows, source: str, fingerprint: str, command: str, evidence: str
) -> dict[str, Any]:
    """Collect the provenance of a report as the page shows it."""
    return {
        "source": source,
        "fingerprint": fingerprint,
        "rows": rows.rows_in_table,
        "users": None if rows.users is None else len(rows.users.names),
        "items": None if rows.items is None else len(rows.items.names),
        "evidence": evidence,
        "versions": versions(),
        "created": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": command,
    }
