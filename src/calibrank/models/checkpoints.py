"""Checkpoints: all that a run needs to go on as if it had never stopped."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from calibrank.errors import DataError
from calibrank.scorers.saved import read_arrays, write_arrays
from calibrank.tables import Interactions

Arrays = dict[str, npt.NDArray[Any]]


def fingerprint(settings: object, *logs: Interactions | None) -> str:
    """A digest of all that a run's result depends on."""
    digest = hashlib.sha256(repr(settings).encode())
    for log in logs:
        if log is not None:
            digest.update(repr((len(log), log.n_users, log.n_items)).encode())
            digest.update(np.ascontiguousarray(log.users).tobytes())
            digest.update(np.ascontiguousarray(log.items).tobytes())
            digest.update(np.ascontiguousarray(log.labels).tobytes())
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A file that holds the state of the run with this fingerprint, whole or not at all."""

    file: Path
    run: str

    def save(self, arrays: Arrays, numbers: Mapping[str, Any]) -> None:
        write_arrays(self.file, arrays, {"run": self.run, "numbers": json.dumps(numbers)})

    def load(self) -> tuple[Arrays, dict[str, Any]] | None:
        """The state saved last, or None if nothing was."""
        if not self.file.exists():
            return None
        try:
            with safe_open(self.file, "numpy") as opened:
                about = opened.metadata() or {}
        except SafetensorError as error:
            raise DataError(
                f"{self.file} must be a checkpoint, got {error}. Delete it to start anew."
            ) from None
        if about.get("run") != self.run:
            raise DataError(
                f"{self.file} must be of the same run, got one of another model, settings, seeds or data. "
                "Delete it to start anew, or choose another folder."
            )
        return read_arrays(self.file), json.loads(about["numbers"])
