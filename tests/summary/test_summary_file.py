"""Saved summaries: no content of a file is trusted, whatever it claims."""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import calibrank as cr
from calibrank._internal.npz import Arrays, read_arrays, write_arrays
from calibrank.summary.grid import CAPACITY, MOST_DISTINCT


def _summary(*, exact: bool) -> cr.Summary:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=400) if exact else rng.normal(size=2 * CAPACITY)
    return cr.Summary.of(scores, cr.ips(scores > 0, rng.uniform(0.1, 1, len(scores))))


def _edited(path: Path, edit: Callable[[Arrays], None], *, exact: bool) -> Path:
    _summary(exact=exact).save(path)
    arrays = read_arrays(path, 2**26)
    edit(arrays)
    write_arrays(path, arrays)
    return path


def _replace(name: str, values: object) -> Callable[[Arrays], None]:
    def edit(arrays: Arrays) -> None:
        arrays[name] = np.array(values)

    return edit


def _set(name: str, place: object, value: float) -> Callable[[Arrays], None]:
    def edit(arrays: Arrays) -> None:
        arrays[name][place] = value

    return edit


def _reverse(name: str) -> Callable[[Arrays], None]:
    def edit(arrays: Arrays) -> None:
        arrays[name] = arrays[name][..., ::-1]

    return edit


def _remove(name: str) -> Callable[[Arrays], None]:
    def edit(arrays: Arrays) -> None:
        del arrays[name]

    return edit


# Masses are rows of one array: positive, total, positive moment, moment, second moment, and three
# sums of squares.
EDITS = [
    (_remove("keys"), "keys missing or unknown"),
    (_remove("version"), "version is missing"),
    (_replace("version", 0), "its version is 0, and 2 is needed"),
    (_replace("version", 1.0), "version is of type float64"),
    (_replace("extra", 1), "extra missing or unknown"),
    (_replace("scores", []), "it has 0 bins"),
    (_replace("scores", np.zeros(MOST_DISTINCT + 1)), "it has 1,048,577 bins"),
    (_replace("scores", [[0.0]]), "scores has 2 dimensions, not 1"),
    (_replace("scores", [1, 2]), "scores is of type int64"),
    (_set("scores", 0, np.nan), "scores are not finite"),
    (_set("scores", 0, -1e31), "scores are not finite and within"),
    (_reverse("scores"), "moment does not match the scores"),
    (_replace("masses", np.ones((6, 3))), "masses have the shape"),
    (_set("masses", (0, 5), np.inf), "positive is not finite"),
    (_set("masses", (0, 5), -0.1), "positive is negative"),
    (_set("masses", (1, 5), 0), "total is not above 0"),
    (_set("masses", (1, 5), -1), "total is not above 0"),
    (_set("masses", (2, 5), 1e20), "positive_moment is too large"),
    (_set("masses", (3, 5), 7.0), "moment does not match the scores"),
    (_set("masses", (4, 5), -1.0), "second_moment is too small"),
    (_set("masses", (4, 5), 1e20), "second_moment is too large"),
    (_set("masses", (5, 5), -1.0), "positive_squared is negative"),
    (_set("masses", (6, 5), -1.0), "cross is negative"),
    (_set("masses", (7, 5), -1.0), "total_squared is negative"),
    (_replace("rows", -5), "-5 rows are in"),
    (_replace("rows", 3.5), "rows is of type float64"),
    (_replace("low", np.nan), "low and high are not scores"),
    (_replace("low", 0.0), r"scores lie outside \[low, high\]"),
    (_replace("kind", 3), "kind is not a text"),
    (_replace("kind", "a\x1b[31m"), "kind is not a name"),
    (_replace("grid", [1.0]), "grid has 1 numbers, not 4"),
    (_replace("grid", [2.0, 53.0, 0.0, 31.0]), "grid keeps 53 bits"),
    (_replace("grid", [9999.0, 10.0, 0.0, 31.0]), r"grid ends at 2\*\*9999"),
    (_replace("grid", [2.0, 10.5, 0.0, 31.0]), "bits is 10.5, not a whole number"),
    (_replace("grid", [2.0, 10.0, np.nan, 31.0]), "grid is not finite"),
    (_replace("grid", [2.0, 10.0, 1e31, 31.0]), "the origin of the grid is 1e"),
    (_replace("grid", [2.0, 10.0, 0.0, -1.0]), "grid has -1 octaves"),
]

EXACT_EDITS = [
    (_replace("low", -100.0), "low and high do not match"),
    (_replace("keys", [1]), "keys without a grid"),
]

GRID_EDITS = [
    (_reverse("keys"), "keys are not in increasing order"),
    (_set("keys", -1, 2**62), r"keys lie outside \[low, high\]"),
    (_replace("keys", [1]), "not one key per bin"),
    (_replace("grid", [-5.0, 10.0, 0.0, 31.0]), "scores reach beyond the grid"),
    (_replace("grid", [3.0, 52.0, 0.0, 31.0]), "the grid has"),
]


@pytest.mark.parametrize("exact", [True, False], ids=["distinct scores", "bins"])
def test_edited_arrays_are_refused(tmp_path: Path, exact: bool) -> None:
    summary = _summary(exact=exact)
    summary.save(tmp_path / "original.npz")
    original = read_arrays(tmp_path / "original.npz", 2**26)
    for edit, message in EDITS + (EXACT_EDITS if exact else GRID_EDITS):
        arrays = {name: values.copy() for name, values in original.items()}
        edit(arrays)
        write_arrays(tmp_path / "edited.npz", arrays)
        with pytest.raises(cr.DataError, match=f"must be a summary that .* saved, got .*{message}"):
            cr.Summary.load(tmp_path / "edited.npz")


def test_keys_of_other_bins_are_refused(tmp_path: Path) -> None:
    def shift(arrays: Arrays) -> None:
        arrays["keys"][1:-1] = arrays["keys"][0] + np.arange(1, len(arrays["keys"]) - 1)

    path = _edited(tmp_path / "edited.npz", shift, exact=False)
    with pytest.raises(cr.DataError, match="scores lie outside their bins"):
        cr.Summary.load(path)


def test_an_edit_without_its_digest_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "summary.npz"
    _summary(exact=True).save(path)
    with np.load(path) as file:
        arrays = dict(file)
    arrays["rows"] = arrays["rows"] + 1
    np.savez(path, **arrays)
    with pytest.raises(cr.DataError, match="does not match its digest"):
        cr.Summary.load(path)
    del arrays["digest"]
    np.savez(path, **arrays)
    with pytest.raises(cr.DataError, match="it holds no digest"):
        cr.Summary.load(path)


def _zip(path: Path, content: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, values in content.items():
            file.writestr(name, values)
    return path


def _npy(header: str, content: bytes = b"") -> bytes:
    encoded = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(encoded).to_bytes(2, "little") + encoded + content


def test_claims_are_checked_before_memory_is_allocated(tmp_path: Path) -> None:
    memory = io.BytesIO()
    np.save(memory, np.zeros(2**20))
    bomb = _zip(tmp_path / "bomb.npz", {"scores.npy": memory.getvalue()}, zipfile.ZIP_DEFLATED)
    claim = "{'descr': '<f8', 'fortran_order': False, 'shape': (900000000000000000,), }"
    petabytes = _zip(tmp_path / "petabytes.npz", {"scores.npy": _npy(claim, b"12345678")})
    pickled = "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }"
    objects = _zip(tmp_path / "objects.npz", {"scores.npy": _npy(pickled, b"12345678")})
    code = _zip(tmp_path / "code.npz", {"scores.npy": _npy("__import__('os').getcwd()")})
    other = _zip(tmp_path / "other.npz", {"readme.txt": b""})
    huge = tmp_path / "huge.npz"
    with huge.open("wb") as file:
        file.truncate(2**40)  # sparse: it takes no space
    messages = {
        bomb: "scores is compressed",
        petabytes: "scores has another size than its header says",
        objects: "scores is not an array of numbers",
        code: "scores is not an array of numbers",
        other: "it holds 'readme.txt'",
        huge: "more than the 134,217,728 that one can have",
    }
    for path, message in messages.items():
        with pytest.raises(cr.DataError, match=message):
            cr.Summary.load(path)


def test_files_of_either_byte_order_are_read(tmp_path: Path) -> None:
    def swap(arrays: Arrays) -> None:
        for name in ("scores", "masses", "rows"):
            arrays[name] = arrays[name].astype(arrays[name].dtype.newbyteorder("S"))

    path = _edited(tmp_path / "summary.npz", swap, exact=True)
    loaded = cr.Summary.load(path)
    np.testing.assert_array_equal(loaded.total, _summary(exact=True).total)
