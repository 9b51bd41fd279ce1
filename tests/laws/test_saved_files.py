"""Saved files are data: a damaged or edited one is refused with our error, or loads equal."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import calibrank as cr
from calibrank._internal import npz
from calibrank._internal.json import digest_of
from calibrank.scorers import InnerProduct, NeuMF, SavedModel
from calibrank.tables import Index

RNG = np.random.default_rng(0)
SCORES = RNG.normal(size=80)
LABELS = (RNG.random(80) < 1 / (1 + np.exp(-SCORES))).astype(float)
FLIPS = 150


def _flipped(content: bytes, rng: np.random.Generator) -> bytes:
    """One to three bits of the content flipped, or its end cut off."""
    damaged = bytearray(content)
    for _ in range(int(rng.integers(1, 4))):
        place = int(rng.integers(len(damaged)))
        damaged[place] ^= 1 << int(rng.integers(8))
    return bytes(damaged[: int(rng.integers(len(damaged)))] if rng.random() < 0.1 else damaged)


def _check_flips(file: Path, load: Callable[[], Any], describe: Callable[[Any], str]) -> None:
    original = file.read_bytes()
    expected = describe(load())
    rng = np.random.default_rng(1)
    for _ in range(FLIPS):
        file.write_bytes(_flipped(original, rng))
        try:
            loaded = load()
        except cr.DataError:
            continue
        assert describe(loaded) == expected
    file.write_bytes(original)


@pytest.mark.parametrize("calibrator", [cr.Platt(), cr.Isotonic(), cr.Spline(), cr.MinMax()])
def test_damaged_maps(calibrator: cr.Calibrator, tmp_path: Path) -> None:
    path = tmp_path / "map.json"
    calibrator.fit(SCORES, LABELS).save(path)
    _check_flips(path, lambda: cr.load(path), lambda fitted: digest_of(fitted.to_dict()))


def _summary_content(summary: cr.Summary) -> str:
    columns = [summary.scores, summary.keys, *summary.masses]
    arrays = [values.tolist() for values in columns]
    return repr((arrays, summary.rows, summary.low, summary.high, summary.kind, summary.grid))


def test_damaged_summaries(tmp_path: Path) -> None:
    path = tmp_path / "summary.npz"
    cr.Summary.of(SCORES, LABELS).save(path)
    _check_flips(path, lambda: cr.Summary.load(path), _summary_content)


def _save_model(folder: Path, names: Index | None = None) -> SavedModel:
    names = Index.of(["añé", "b", "c", "d"]) if names is None else names
    vectors = RNG.standard_normal((2, 4, 3)).astype(np.float32)
    model = SavedModel(InnerProduct(*vectors, {}), names, names, {"model": "BPR", "seed": 1})
    model.save(folder)
    return model


def _model_content(model: SavedModel) -> str:
    return repr((model.digest, model.about, model.users.names.tolist(), model.items.names.tolist()))


def test_damaged_models(tmp_path: Path) -> None:
    _save_model(tmp_path)
    _check_flips(tmp_path / "model.npz", lambda: SavedModel.load(tmp_path), _model_content)


def _description(**fields: Any) -> dict[str, Any]:
    document = {"format": 2, "scorer": InnerProduct.kind, "about": {}, **fields}
    return {"description": np.frombuffer(json.dumps(document).encode(), dtype=np.uint8)}


EDITS: dict[str, dict[str, Any]] = {
    "missing": {"users": None},
    "dimensions": {"users": np.ones(4, np.float32)},
    "types": {"items": np.ones((4, 3), np.int32)},
    "NaN": {"items": np.full((4, 3), np.nan, np.float32)},
    "widths": {"users": np.ones((4, 2), np.float32)},
    "fewer ids": {"item_names": np.arange(3)},
    "ids twice": {"item_names": np.array([1, 1, 2, 3])},
    "no description": {"description": None},
    "a description that is no text": {"description": np.full(3, 255, np.uint8)},
    "another format": _description(format=1),
    "another scorer": _description(scorer="other"),
    "unknown fields": _description(more=1),
    "weights that are not there": _description(scorer=NeuMF.kind),
}


@pytest.mark.parametrize("edit", EDITS)
def test_edited_arrays_of_models(tmp_path: Path, edit: str) -> None:
    _save_model(tmp_path)
    file = tmp_path / "model.npz"
    arrays = {**npz.read_arrays(file, 2**30), **EDITS[edit]}
    npz.write_arrays(file, {name: each for name, each in arrays.items() if each is not None})
    with pytest.raises(cr.DataError, match=r"must (hold|be a model|be JSON)"):
        SavedModel.load(tmp_path)


def test_an_id_that_the_format_cannot_hold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(cr.DataError, match="user ids must be at most 9,999 characters"):
        _save_model(tmp_path, Index.of(["a", "b", "c", "x" * 10_000]))


def test_ids_of_a_model_keep_their_type(tmp_path: Path) -> None:
    big = Index.of(np.array([1, 2**63, 2**63 + 1, 2**63 + 2], dtype=np.uint64))
    _save_model(tmp_path, big)
    loaded = SavedModel.load(tmp_path)
    assert loaded.users.names.tolist() == big.names.tolist()


def _edited_map(path: Path, edit: Callable[[dict[str, Any]], None], fitted: Any) -> None:
    document = fitted.to_dict()
    edit(document)
    path.write_text(json.dumps({**document, "digest": digest_of(document)}))


def test_maps_whose_numbers_overflow_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "map.json"

    def set_field(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
        def edit(document: dict[str, Any]) -> None:
            document["curve"][name] = value

        return edit

    platt = cr.Platt().fit(SCORES, LABELS)
    rescale = cr.MinMax().fit(SCORES, LABELS)
    for fitted, name, value in [
        (platt, "low", -1e308),
        (platt, "high", 1e308),
        (rescale, "high", 1.7e308),
        (rescale, "low", -1e31),
    ]:
        _edited_map(path, set_field(name, value), fitted)
        with pytest.raises(cr.DataError, match=r"map\.json"):
            cr.load(path)


def test_maps_of_version_0_and_with_duplicate_keys_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "map.json"
    fitted = cr.Platt().fit(SCORES, LABELS)
    _edited_map(path, lambda document: document.update(version=0), fitted)
    with pytest.raises(cr.DataError, match="version must be 1 or more, got 0"):
        cr.load(path)
    fitted.save(path)
    path.write_text(path.read_text().replace('"version": 2', '"version": 2, "version": 2'))
    with pytest.raises(cr.DataError, match="the key 'version' occurs twice"):
        cr.load(path)
