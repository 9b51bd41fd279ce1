"""Saved models: one file of arrays with a digest, `model.npz` in a folder, without pickle."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from calibrank._internal.json import Fields
from calibrank._internal.npz import Arrays, read_arrays, write_arrays
from calibrank._internal.validation import Floats, Ids, ids
from calibrank.errors import DataError
from calibrank.scorers.scorer import Distance, Factors, InnerProduct, NeuMF
from calibrank.tables import Index

_KINDS: dict[str, type[Factors]] = {
    scorer.kind: scorer for scorer in (InnerProduct, Distance, NeuMF)
}
# Raised when a reader of the old format could misread the new one.
_FORMAT = 2
_FILE = "model.npz"
_LARGEST_FILE = 2**36
"""In bytes: the vectors of a hundred million users and items."""
_LONGEST_ID = 9999
"""In characters, as the format allows."""
_DESCRIPTION = "description"
_WEIGHT_PREFIX = "weight."
_REMEDY = "Train the model again."


@dataclass(frozen=True, slots=True, eq=False)
class SavedModel:
    """A scorer with the ids of its users and items.

    `about` records how it was made: model, settings, seed and best epoch.
    """

    scorer: Factors
    users: Index
    items: Index
    about: dict[str, Any]

    @property
    def digest(self) -> str:
        """A digest of every array that scores depend on."""
        content = hashlib.sha256(self.scorer.kind.encode())
        # By name: a file returns the weights in another order than they were saved in.
        weights = [values for _, values in sorted(self.scorer.weights.items())]
        for values in (self.scorer.users, self.scorer.items, *weights):
            content.update(np.ascontiguousarray(values).tobytes())
        return content.hexdigest()

    def save(self, folder: str | Path) -> None:
        """Write the model to a folder, in one file."""
        document = {"format": _FORMAT, "scorer": self.scorer.kind, "about": self.about}
        arrays: Arrays = {
            "users": self.scorer.users,
            "items": self.scorer.items,
            "user_names": _writable("user ids", self.users.names),
            "item_names": _writable("item ids", self.items.names),
            _DESCRIPTION: np.frombuffer(json.dumps(document).encode(), dtype=np.uint8),
        }
        for name, values in self.scorer.weights.items():
            arrays[_WEIGHT_PREFIX + name] = values
        write_arrays(Path(folder) / _FILE, arrays)

    @classmethod
    def load(cls, folder: str | Path) -> SavedModel:
        """Read a model from a folder that `save` wrote; a damaged file is an error."""
        path = Path(folder) / _FILE
        if not path.is_file():
            remedy = "Train one with `calibrank train`."
            raise DataError(folder, "be a saved model", f"no {_FILE} in it", remedy)
        try:
            arrays = read_arrays(path, _LARGEST_FILE)
            text = arrays.pop(_DESCRIPTION).tobytes().decode()
        except (KeyError, ValueError) as error:
            raise DataError(path, "be a model that calibrank saved", error, _REMEDY) from None
        fields = Fields.parse(str(path), text, _REMEDY)
        # An unknown field may change the meaning of the known ones.
        fields.only("format", "scorer", "about")
        name = fields.text("scorer")
        if fields.count("format") != _FORMAT or name not in _KINDS:
            rule = f"be a model of format {_FORMAT}"
            raise DataError(path, rule, f"{name!r}", "Update calibrank.")
        weights = {
            name.removeprefix(_WEIGHT_PREFIX): values
            for name, values in arrays.items()
            if name.startswith(_WEIGHT_PREFIX)
        }
        try:
            scorer = _KINDS[name](_vectors(arrays, "users"), _vectors(arrays, "items"), weights)
            _check_scorer(scorer)
            users = _read_index(arrays, "user_names", len(scorer.users))
            items = _read_index(arrays, "item_names", len(scorer.items))
        # What wrong arrays raise: missing ones, and other shapes.
        except (KeyError, ValueError, IndexError, TypeError) as error:
            raise DataError(path, f"hold the arrays of a {name} model", error, _REMEDY) from None
        return cls(scorer, users, items, dict(fields.child("about").values))


def _writable(what: str, names: Ids) -> Ids:
    """Ids as numbers or text."""
    plain = names if names.dtype.kind in "biuf" else names.astype(str)
    if plain.dtype.kind == "U" and plain.dtype.itemsize > 4 * _LONGEST_ID:
        raise DataError(what, f"be at most {_LONGEST_ID:,} characters", "a longer one")
    return plain


def _vectors(arrays: Arrays, name: str) -> Floats:
    vectors = arrays[name]
    if vectors.ndim != 2 or not vectors.size or vectors.dtype.kind != "f":
        raise ValueError(f"{name} of type {vectors.dtype} and shape {vectors.shape}")
    if not np.isfinite(vectors).all():
        raise ValueError(f"{name} that are not finite")
    return vectors


def _check_scorer(scorer: Factors) -> None:
    """Score one pair: arrays of shapes that do not fit together raise a `ValueError`."""
    if scorer.users.shape[1] != scorer.items.shape[1]:
        raise ValueError(f"vectors of {scorer.users.shape[1]} and {scorer.items.shape[1]} numbers")
    for name, values in scorer.weights.items():
        if values.dtype.kind != "f" or not np.isfinite(values).all():
            raise ValueError(f"{name} that is not finite")
    with np.errstate(all="ignore"):
        pair = scorer.score([0], [0])
        row = scorer.score_all([0])
    if pair.shape != (1,) or row.shape != (1, len(scorer.items)):
        raise ValueError("weights of other shapes")


def _read_index(arrays: Arrays, name: str, rows: int) -> Index:
    names = ids(name, arrays[name], rows)
    if (names[1:] <= names[:-1]).any():
        raise ValueError(f"{name} that are not sorted and distinct")
    return Index(names)
