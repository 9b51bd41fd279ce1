"""Checkpoints: the state that an interrupted training run needs to continue."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrank.errors import DataError
from calibrank.scorers.saved import read_arrays, write_arrays
from calibrank.tables import Interactions

Arrays = dict[str, npt.NDArray[Any]]


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
        # safetensors holds arrays; everything else goes into its metadata, which are strings.
        metadata = {"run": self.run, "numbers": json.dumps(numbers), "digest": _digest(arrays)}
        write_arrays(self.file, arrays, metadata)

    def load(self) -> tuple[Arrays, dict[str, Any]] | None:
        """The state that was saved last, or None if there is none."""
        if not self.file.exists():
            return None
        run = self._read_metadata().get("run")
        if run != self.run:
            raise DataError(
                self.file,
                "be of the same run",
                "one with a different model, settings, seeds or data",
                "Delete it to start again, or choose another folder.",
            )
        return self.read()

    def read(self) -> tuple[Arrays, dict[str, Any]]:
        """The saved state of whatever run; a damaged file is an error."""
        metadata = self._read_metadata()
        arrays = read_arrays(self.file)
        if metadata.get("digest") != _digest(arrays):
            raise self.damage("arrays that were changed after they were saved")
        try:
            numbers = json.loads(metadata["numbers"])
        except (KeyError, ValueError, RecursionError):
            raise self.damage("no numbers of a run") from None
        if not isinstance(numbers, dict):
            raise self.damage("no numbers of a run")
        return arrays, numbers

    def damage(self, found: str) -> DataError:
        """The error about a file with other content than a checkpoint's."""
        return DataError(self.file, "be a checkpoint", found, "Delete it to start again.")

    def require_alike(self, arrays: Arrays, expected: Arrays) -> None:
        """Raise unless the arrays have the expected names, types and shapes, and are finite."""
        if set(arrays) != set(expected):
            raise self.damage("other arrays than those of this model")
        for name, values in arrays.items():
            if values.dtype != expected[name].dtype or values.shape != expected[name].shape:
                raise self.damage(f"{name} of type {values.dtype} and shape {values.shape}")
            if not np.isfinite(values).all():
                raise self.damage(f"{name} that is not finite")

    def _read_metadata(self) -> dict[str, str]:
        from safetensors import SafetensorError, safe_open  # noqa: PLC0415  (optional)

        try:
            with safe_open(self.file, "numpy") as opened:
                return opened.metadata() or {}
        except SafetensorError as error:
            raise self.damage(str(error)) from None


def _digest(arrays: Arrays) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        values = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {values.dtype.str} {values.shape}\n".encode())
        digest.update(values.data)
    return digest.hexdigest()
