"""Checkpoints: the state that an interrupted training run needs to continue."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from calibrank._internal.npz import Arrays, read_arrays, write_arrays
from calibrank.errors import DataError
from calibrank.tables import Interactions

_ABOUT = "about"
_LARGEST_FILE = 2**40
"""In bytes: a file whose size is claimed to be larger holds no model."""


def fingerprint(settings: object, *logs: Interactions | None) -> str:
    """A digest of everything that the result of a run depends on."""
    # Settings are frozen dataclasses, whose repr holds every field.
    digest = hashlib.sha256(repr(settings).encode())
    for log in logs:
        if log is None:
            continue
        digest.update(repr((len(log), log.n_users, log.n_items)).encode())
        for column in (log.users, log.items, log.labels):
            digest.update(np.ascontiguousarray(column).tobytes())
    return digest.hexdigest()


def delete_if_damaged(file: Path) -> None:
    """Delete a checkpoint that cannot be read, so that its run starts again."""
    if not file.exists():
        return
    try:
        Checkpoint(file, "").read()
    except DataError:
        file.unlink()


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A file with the state of the run that has this fingerprint; it is replaced atomically."""

    file: Path
    run: str

    def save(self, arrays: Arrays, numbers: Mapping[str, Any]) -> None:
        """Replace the saved state."""
        about = json.dumps({"run": self.run, **numbers}).encode()
        write_arrays(self.file, {**arrays, _ABOUT: np.frombuffer(about, dtype=np.uint8)})

    def load(self) -> tuple[Arrays, dict[str, Any]] | None:
        """The state that was saved last, or None if there is none."""
        if not self.file.exists():
            return None
        arrays, numbers = self.read()
        if numbers.get("run") != self.run:
            raise DataError(
                self.file,
                "be of the same run",
                "one with a different model, settings, seed or data",
                "Delete it to start again, or choose another folder.",
            )
        return arrays, numbers

    def read(self) -> tuple[Arrays, dict[str, Any]]:
        """The saved state of whatever run; a damaged file is an error."""
        try:
            arrays = read_arrays(self.file, _LARGEST_FILE)
            numbers = json.loads(arrays.pop(_ABOUT).tobytes())
        except (KeyError, ValueError, RecursionError) as error:
            remedy = "Delete it to start again."
            raise DataError(self.file, "be a checkpoint", error, remedy) from None
        return arrays, dict(numbers)
