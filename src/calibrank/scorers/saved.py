"""Saved models: a folder with `model.json`, `weights.safetensors` and the names of users and items; no pickle."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrank._atomic import atomic_path, write_atomic
from calibrank._json import Fields
from calibrank._validation import Ids
from calibrank.errors import DataError, MissingExtraError
from calibrank.scorers.distance import Distance
from calibrank.scorers.inner_product import InnerProduct
from calibrank.scorers.neumf import NeuMF
from calibrank.scorers.scorer import Factors
from calibrank.tables import Index

_KINDS: dict[str, type[Factors]] = {
    scorer.kind: scorer for scorer in (InnerProduct, Distance, NeuMF)
}
_FORMAT = 1


@dataclass(frozen=True, slots=True, eq=False)
class SavedModel:
    """A scorer, the names of its rows, and how it came to be (`about`: model, settings, seed, best epoch)."""

    scorer: Factors
    users: Index
    items: Index
    about: dict[str, Any]

    @property
    def digest(self) -> str:
        """Of all numbers that scores depend on."""
        parts = [self.scorer.users, self.scorer.items, *self.scorer.weights.values()]
        content = hashlib.sha256(self.scorer.kind.encode())
        for part in parts:
            content.update(np.ascontiguousarray(part).tobytes())
        return content.hexdigest()

    def save(self, folder: str | Path) -> None:
        """Write the folder; `model.json` comes last and holds the weights' digest, so half a model is no model."""
        folder = Path(folder)
        arrays = {"users": self.scorer.users, "items": self.scorer.items}
        arrays |= {f"weight.{name}": values for name, values in self.scorer.weights.items()}
        arrays |= _packed("user_names", self.users.names) | _packed("item_names", self.items.names)
        write_arrays(folder / "weights.safetensors", arrays)
        document = {
            "format": _FORMAT,
            "scorer": self.scorer.kind,
            "about": self.about,
            "weights": _digest(folder / "weights.safetensors"),
        }
        write_atomic(folder / "model.json", json.dumps(document, indent=1))


def load_model(folder: str | Path) -> SavedModel:
    """Read a folder that `SavedModel.save` wrote; damage is an error."""
    folder = Path(folder)
    if not (folder / "model.json").is_file():
        raise DataError(
            f"{folder} must be a saved model, got no model.json in it. Train with `calibrank train`."
        )
    fields = Fields.parse(str(folder / "model.json"), (folder / "model.json").read_text())
    fields.only("format", "scorer", "about", "weights")
    kind = fields.text("scorer")
    if fields.count("format") != _FORMAT or kind not in _KINDS:
        raise DataError(
            f"{folder} must be a model of format {_FORMAT}, got {kind!r}. Update calibrank."
        )
    weights = folder / "weights.safetensors"
    if not weights.is_file() or _digest(weights) != fields.text("weights"):
        raise DataError(
            f"{weights} must be the file saved with model.json, got another. Train again."
        )
    arrays = read_arrays(weights)
    own = {
        name.removeprefix("weight."): values
        for name, values in arrays.items()
        if name.startswith("weight.")
    }
    scorer = _KINDS[kind](arrays["users"], arrays["items"], own)
    users, items = (Index(_unpacked(arrays, name)) for name in ("user_names", "item_names"))
    return SavedModel(scorer, users, items, dict(fields.child("about").values))


def write_arrays(
    path: Path, arrays: dict[str, npt.NDArray[Any]], about: dict[str, str] | None = None
) -> None:
    """Arrays as one safetensors file, whole or not at all."""
    save = _safetensors().save_file
    with atomic_path(path) as partial:
        save(
            {name: np.ascontiguousarray(values) for name, values in arrays.items()}, partial, about
        )


def read_arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """The arrays of a safetensors file."""
    loaded: dict[str, npt.NDArray[Any]] = _safetensors().load_file(path)
    return loaded


def _safetensors() -> Any:
    try:
        import safetensors.numpy  # noqa: PLC0415  (only saved models need it)
    except ImportError as error:
        raise MissingExtraError("safetensors", "torch") from error
    return safetensors.numpy


def _packed(name: str, names: Ids) -> dict[str, npt.NDArray[Any]]:
    """Names as arrays: numbers as they are, texts as bytes and where each ends."""
    if names.dtype.kind in "iu":
        return {name: names.astype(np.int64)}
    texts = [str(text).encode() for text in names]
    return {
        name: np.frombuffer(b"".join(texts), dtype=np.uint8),
        f"{name}.ends": np.cumsum([len(t) for t in texts]),
    }


def _unpacked(arrays: dict[str, npt.NDArray[Any]], name: str) -> Ids:
    if f"{name}.ends" not in arrays:
        return arrays[name]
    text, ends = arrays[name].tobytes(), arrays[f"{name}.ends"].tolist()
    return np.array(
        [text[start:end].decode() for start, end in zip([0, *ends], ends, strict=False)]
    )


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
