"""Saved sums by segment: every rule about their arrays, at its edge and beyond."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import calibrank as cr
from calibrank._internal.npz import Arrays, read_arrays, write_arrays
from calibrank._internal.segment_keys import encode
from calibrank.summary._cells import BINS
from calibrank.summary.by_segment import SegmentSums

Edit = Callable[[Arrays], None]


def saved(path: Path) -> Arrays:
    """Two countries, of which one has cities; four bins, of which not all have rows."""
    sums = SegmentSums(np.array([-1.0, 0.0, 1.0]), ["country", "city"])
    country = encode("country", ["NL", "DE", "NL", "NL"])
    city = encode("city", ["Delft", None, "Delft", "Ede"])
    evidence = cr.naive([0, 1, 1, 0], weights=[1.0, 2.0, 3.0, 4.0])
    sums.add(np.array([-2.0, 0.5, 2.0, -0.5]), evidence, [country, city])
    sums.save(path)
    return read_arrays(path, 2**26)


def put(name: str, value: object, dtype: str = "") -> Edit:
    def edit(arrays: Arrays) -> None:
        arrays[name] = np.array(value, dtype=dtype or arrays[name].dtype)

    return edit


def at(name: str, place: object, value: float) -> Edit:
    def edit(arrays: Arrays) -> None:
        arrays[name][place] = value

    return edit


def about(text: str) -> Edit:
    return put("about", np.frombuffer(text.encode(), dtype=np.uint8))


def remove(arrays: Arrays) -> None:
    del arrays["places"]


def load(path: Path, arrays: Arrays) -> SegmentSums:
    write_arrays(path, arrays)
    return SegmentSums.load(path)


def test_saved_sums_are_read_as_they_were(tmp_path: Path) -> None:
    arrays = saved(tmp_path / "sums.npz")
    loaded = load(tmp_path / "again.npz", arrays)
    assert loaded.keys == [("NL", "Delft"), ("NL", "Ede"), ("DE",)]
    assert loaded.edges.tolist() == [-1.0, 0.0, 1.0]
    # Cells with rows only: positive mass, total mass and mass times score.
    assert arrays["places"].tolist() == [0, 3, BINS + 1, 2 * BINS + 2]
    assert arrays["by_bin"].tolist() == [[0, 1, -2], [3, 3, 6], [0, 4, -2], [2, 2, 1]]
    # Squares of positive and of total mass, and rows.
    assert arrays["by_segment"].tolist() == [[9, 10, 2], [0, 16, 1], [4, 4, 1]]
    assert loaded.by_bin[1][:, :4].tolist() == [[1, 0, 0, 3], [0, 4, 0, 0], [0, 0, 2, 0]]
    again = tmp_path / "third.npz"
    loaded.save(again)
    for name, values in read_arrays(again, 2**26).items():
        np.testing.assert_array_equal(values, arrays[name])


@pytest.mark.parametrize(
    "edit",
    [
        at("by_bin", (0, 0), 0.0),
        at("by_bin", (0, 2), -1e30),
        at("by_segment", (0, 0), 0.0),
        put("edges", [-1e30, 0.0, 1e30]),
        at("places", 1, 3),
        put("places", [0, 3, BINS + 2, 3 * BINS - BINS + 3]),
    ],
)
def test_the_edge_of_a_rule_is_read(tmp_path: Path, edit: Edit) -> None:
    arrays = saved(tmp_path / "sums.npz")
    edit(arrays)
    load(tmp_path / "edited.npz", arrays)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (remove, "its arrays are wrong: places missing or unknown"),
        (put("version", 4), "its version is 4, upgrade calibrank"),
        (put("version", 2), "its version is 2, and 3 is needed"),
        (about("no JSON"), "about does not hold columns, a kind of evidence and keys"),
        (about("[[], null]"), "about does not hold columns, a kind of evidence and keys"),
        (about("[[], null, 1]"), "about does not hold columns, a kind of evidence and keys"),
        (about("[[1], null, []]"), "about has other types than text"),
        (about("[[], 1, []]"), "about has other types than text"),
        (about('[[], null, [["NL"], ["DE", 1], ["FR"]]]'), "about has other types than text"),
        (about('[[], null, [["NL"], ["DE"], ["NL"]]]'), "keys are not different"),
        (about('[[], null, [["NL"], ["DE"], []]]'), "keys are not different and of some values"),
        (
            about('[["country"], "naive", [["NL", "Ede"]]]'),
            r"keys have more values than \('country',\)",
        ),
        (put("version", 1, "f8"), "version is of type float64"),
        (put("by_bin", np.ones((4, 3)), "f4"), "by_bin is of type float32"),
        (put("edges", [[0.0]]), "edges has 2 dimensions"),
        (put("edges", np.arange(float(BINS))), f"it has {BINS} edges"),
        (put("edges", [0.0, 0.0, 1.0]), "edges are not in increasing order"),
        (put("edges", [-1.1e30, 0.0, 1.0]), "edges are not scores"),
        (put("edges", [np.nan, 0.0, 1.0]), "edges are not scores"),
        (put("by_segment", np.ones((2, 3))), r"by_segment has the shape \(2, 3\)"),
        (put("by_segment", np.ones((3, 2))), r"by_segment has the shape \(3, 2\)"),
        (put("by_bin", np.ones((3, 3))), r"by_bin has the shape \(3, 3\)"),
        (put("places", [[0, 3, 66, 129]]), "places has 2 dimensions"),
        (at("places", 0, -1), "places are out of range or order"),
        (at("places", 1, 0), "places are out of range or order"),
        (at("places", 1, 4), "places are out of range or order"),
        (at("places", 3, 3 * BINS), "places are out of range or order"),
        (at("by_bin", (0, 1), np.inf), "by_bin is not finite"),
        (at("by_segment", (0, 1), np.nan), "by_segment is not finite"),
        (at("by_bin", (0, 0), -1e-9), "a mass is negative"),
        (at("by_segment", (2, 2), -1.0), "a mass is negative"),
        (at("by_bin", (0, 1), 0.0), "total is not above 0"),
        (at("by_bin", (0, 2), 1.1e30), "moments are too large"),
        (at("by_bin", (0, 2), -1.1e30), "moments are too large"),
    ],
)
def test_beyond_the_edge_is_refused(tmp_path: Path, edit: Edit, message: str) -> None:
    arrays = saved(tmp_path / "sums.npz")
    edit(arrays)
    with pytest.raises(cr.DataError, match=f"must be .*{message}"):
        load(tmp_path / "edited.npz", arrays)


def test_an_empty_value_is_saved_too(tmp_path: Path) -> None:
    by = cr.Platt() + cr.Level("country")
    columns = {"country": np.array(["", "NL", "NL", ""])}
    sums = by.sums(np.array([0.0, 1.0, 2.0, 3.0]), np.array([0, 1, 0, 1]), columns)
    sums.save(tmp_path / "sums.npz")
    assert SegmentSums.load(tmp_path / "sums.npz").keys == sums.keys


def test_only_sums_of_the_same_columns_and_evidence_are_added(tmp_path: Path) -> None:
    scores, labels = np.arange(4.0), np.array([0, 1, 0, 1])
    rows = {"country": ["NL", "DE"] * 2, "device": ["tv", "phone"] * 2}
    by_country = (cr.Platt() + cr.Level("country")).sums(scores, labels, rows)
    by_device = (cr.Platt() + cr.Level("device")).sums(scores, labels, rows)
    weighted = cr.ips(labels, np.full(4, 0.5))
    by_weight = (cr.Platt() + cr.Level("country")).sums(scores, weighted, rows)
    by_country.save(tmp_path / "sums.npz")
    loaded = SegmentSums.load(tmp_path / "sums.npz")
    assert (loaded.names, loaded.kind) == (("country",), "naive")
    for sums in (by_country, loaded, loaded + loaded):
        with pytest.raises(cr.DataError, match=r"same columns, got \('country',\) and"):
            _ = sums + by_device
        with pytest.raises(cr.DataError, match="same kind of evidence, got naive and ips"):
            _ = sums + by_weight
    fitted = cr.Platt().fit(scores, labels)
    with pytest.raises(cr.DataError, match=r"same columns, got \('device',\) and"):
        (cr.Platt() + cr.Level("country")).fit_sums(fitted, by_device)
