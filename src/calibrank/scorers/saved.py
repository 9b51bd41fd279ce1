"""Saved models: a folder with `model.json` and `weights.safetensors`, without pickle."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrank._internal.atomic import atomic_path, write_atomic
from calibrank._internal.json import Fields, digest_of, read_document
from calibrank._internal.validation import Floats, Ids, ids
from calibrank.errors import DataError, MissingExtraError
from calibrank.scorers.scorer import Distance, Factors, InnerProduct, NeuMF
from calibrank.tables import Index

_KINDS: dict[str, type[Factors]] = {
    scorer.kind: scorer for scorer in (InnerProduct, Distance, NeuMF)
}
# Raised when a reader of the old format could misread the new one.
_FORMAT = 1
_MODEL_FILE = "model.json"
_WEIGHTS_FILE = "weights.safetensors"
_WEIGHT_PREFIX = "weight."

Arrays = dict[str, npt.NDArray[Any]]


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
        """Write the model to a folder.

        `model.json` is written last and holds the digest of the weights, so a model that was only
        partly written is recognized as such.
        """
        folder = Path(folder)
        write_arrays(folder / _WEIGHTS_FILE, self._arrays())
        document = {
            "format": _FORMAT,
            "scorer": self.scorer.kind,
            "about": self.about,
            "weights": _file_digest(folder / _WEIGHTS_FILE),
        }
        sealed = {**document, "digest": digest_of(document)}
        write_atomic(folder / _MODEL_FILE, json.dumps(sealed, indent=1))

    @classmethod
    def load(cls, folder: str | Path) -> SavedModel:
        """Read a model from a folder that `save` wrote; a damaged file is an error."""
        folder = Path(folder)
        fields = _read_description(folder)
        path = _verified_weights(folder, fields.text("weights"))
        arrays = read_arrays(path)
        weights = {
            name.removeprefix(_WEIGHT_PREFIX): values
            for name, values in arrays.items()
            if name.startswith(_WEIGHT_PREFIX)
        }
        kind = _KINDS[fields.text("scorer")]
        try:
            scorer = kind(_vectors(arrays, "users"), _vectors(arrays, "items"), weights)
            _check_scorer(scorer)
            users = _read_index(arrays, "user_names", len(scorer.users))
            items = _read_index(arrays, "item_names", len(scorer.items))
        except _DAMAGED as error:
            raise DataError(
                path, f"hold the arrays of a {kind.kind} model", error, "Train the model again."
            ) from None
        return cls(scorer, users, items, dict(fields.child("about").values))

    def _arrays(self) -> Arrays:
        arrays = {"users": self.scorer.users, "items": self.scorer.items}
        for name, values in self.scorer.weights.items():
            arrays[_WEIGHT_PREFIX + name] = values
        arrays |= _encode_ids("user_names", self.users.names)
        arrays |= _encode_ids("item_names", self.items.names)
        return arrays


def write_arrays(path: Path, arrays: Arrays, metadata: dict[str, str] | None = None) -> None:
    """Write arrays to one safetensors file, atomically."""
    save_file = _safetensors().save_file
    contiguous = {name: np.ascontiguousarray(values) for name, values in arrays.items()}
    with atomic_path(path) as partial:
        save_file(contiguous, partial, metadata)


def read_arrays(path: Path) -> Arrays:
    """The arrays of a safetensors file."""
    load_file = _safetensors().load_file
    from safetensors import SafetensorError  # noqa: PLC0415  (only saved models need it)

    try:
        loaded: Arrays = load_file(path)
    # A `KeyError` is about a type that NumPy does not have.
    except (SafetensorError, KeyError, ValueError) as error:
        raise DataError(
            path, "be a safetensors file that calibrank wrote", error, "Train the model again."
        ) from None
    return loaded


def _read_description(folder: Path) -> Fields:
    path = folder / _MODEL_FILE
    if not path.is_file():
        raise DataError(
            folder, "be a saved model", "no model.json in it", "Train one with `calibrank train`."
        )
    remedy = "Train the model again."
    fields = Fields.parse(str(path), read_document(path, remedy), remedy)
    # An unknown field may change the meaning of the known ones.
    fields.only("format", "scorer", "about", "weights", "digest")
    content = {name: value for name, value in fields.values.items() if name != "digest"}
    # Files of older versions have no digest.
    if "digest" in fields.values and fields.text("digest") != digest_of(content):
        raise DataError(
            path,
            "match its digest: it was changed after it was saved",
            remedy="Train the model again.",
        )
    kind = fields.text("scorer")
    if fields.count("format") != _FORMAT or kind not in _KINDS:
        raise DataError(folder, f"be a model of format {_FORMAT}", f"{kind!r}", "Update calibrank.")
    return fields


def _verified_weights(folder: Path, digest: str) -> Path:
    weights = folder / _WEIGHTS_FILE
    if not weights.is_file() or _file_digest(weights) != digest:
        raise DataError(
            weights,
            "be the file saved with model.json",
            "a different one",
            "Train the model again.",
        )
    return weights


def _safetensors() -> Any:
    try:
        import safetensors.numpy  # noqa: PLC0415  (only saved models need it)
    except ImportError as error:
        raise MissingExtraError("safetensors", "torch") from error
    return safetensors.numpy


def _encode_ids(name: str, ids: Ids) -> Arrays:
    """Ids as numeric arrays: integers unchanged, strings as UTF-8 bytes and the end of each.

    safetensors stores numbers only.
    """
    if ids.dtype.kind in "iuf":
        return {name: ids}
    encoded = [str(text).encode() for text in ids]
    lengths = [len(text) for text in encoded]
    return {
        name: np.frombuffer(b"".join(encoded), dtype=np.uint8),
        f"{name}.ends": np.cumsum(lengths),
    }


def _decode_ids(arrays: Arrays, name: str) -> Ids:
    if f"{name}.ends" not in arrays:
        return arrays[name]
    content = arrays[name].tobytes()
    ends = arrays[f"{name}.ends"].tolist()
    starts = [0, *ends[:-1]]
    if starts != sorted(starts) or (ends and ends[-1] != len(content)):
        raise ValueError(f"ids in {name} that overlap")
    return np.array([content[start:end].decode() for start, end in zip(starts, ends, strict=False)])


# What wrong arrays raise: missing ones, other shapes, and ids that are no text.
_DAMAGED = (KeyError, ValueError, IndexError, TypeError)


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
    names = ids(name, _decode_ids(arrays, name), rows)
    if (names[1:] <= names[:-1]).any():
        raise ValueError(f"{name} that are not sorted and distinct")
    return Index(names)


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
