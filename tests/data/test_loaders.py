"""Loaders of official file layouts and of tables."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

import calibrank.data
from calibrank.data import (
    Positives,
    ReleasedSplit,
    load_coat,
    load_kuairand,
    load_kuairec,
    load_table,
    load_yahoo_r3,
    with_negatives,
)
from calibrank.data.official import find_file
from calibrank.errors import DataError
from calibrank.registry import load_dataset
from calibrank.tables import Index, Interactions


def test_all_names_are_exported_without_loading_pyarrow():
    for name in calibrank.data.__all__:
        assert getattr(calibrank.data, name) is not None
    code = "import sys, calibrank.data; print('pyarrow' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "False"


# ---- official layouts ----


@pytest.fixture
def coat(tmp_path):
    rng = np.random.default_rng(0)
    for part, density in (("train", 0.08), ("test", 0.05)):
        ratings = rng.integers(1, 6, (290, 300)) * (rng.random((290, 300)) < density)
        np.savetxt(tmp_path / f"{part}.ascii", ratings, fmt="%d")
    return tmp_path


def test_coat_is_loaded_with_features_and_propensities_where_there_are_any(coat):
    dataset = load_coat(coat)
    ratings = np.loadtxt(coat / "train.ascii")
    assert (dataset.train.n_users, dataset.train.n_items) == (290, 300)
    assert len(dataset.train) == (ratings > 0).sum()
    assert dataset.train.labels.sum() == (ratings > 3).sum()
    given = dataset.train.ratings
    np.testing.assert_array_equal(given, ratings[dataset.train.users, dataset.train.items])
    assert set(dataset.train.positives().ratings) == {4, 5}
    assert dataset.test is not None
    assert dataset.propensity is None
    (coat / "user_item_features").mkdir()
    np.savetxt(coat / "user_item_features" / "user_features.ascii", np.eye(290)[:, :4], fmt="%d")
    np.savetxt(coat / "propensities.ascii", np.full((290, 300), 0.25))
    with_more = load_coat(coat)
    assert with_more.user_features.shape == (290, 4)
    assert with_more.propensity.shape == (290, 300)


def test_sampled_negatives_have_no_rating(coat):
    log = load_coat(coat).train.positives()
    kept, held_out = ReleasedSplit().divide(log)
    pairs = with_negatives(held_out, Positives.of(kept, held_out), 2)
    rated = len(held_out)
    np.testing.assert_array_equal(pairs.ratings[:rated], held_out.ratings)
    assert np.isnan(pairs.ratings[rated:]).all()
    unrated = Interactions(held_out.users, held_out.items, None, log.n_users, log.n_items)
    assert with_negatives(unrated, Positives.of(kept, unrated), 2).ratings is None


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1 2 x", r"train\.ascii, line 3 must hold 300 numbers, got 3"),
        (
            " ".join(["0"] * 299 + ["x"]),
            r"train\.ascii, line 3 must hold ratings 1 to 5, or 0 where not rated, got '0 0",
        ),
        (
            " ".join(["0"] * 299 + ["7"]),
            r"train\.ascii, line 3 must hold ratings 1 to 5, or 0 where not rated",
        ),
    ],
)
def test_an_invalid_line_of_coat_is_named(coat, line, message):
    lines = (coat / "train.ascii").read_text().splitlines()
    lines[2] = line
    (coat / "train.ascii").write_text("\n".join(lines))
    with pytest.raises(DataError, match=message):
        load_coat(coat)


def yahoo_lines(rng, n_users, each):
    lines = []
    for user in range(1, n_users + 1):
        songs = np.sort(rng.choice(1000, each, replace=False)) + 1
        ratings = rng.integers(1, 6, each)
        for song, rating in zip(songs, ratings, strict=True):
            lines.append(f"{user}\t{song}\t{rating}\n")
    return "".join(lines)


def test_yahoo_r3_is_loaded_and_an_invalid_line_is_named(tmp_path):
    rng = np.random.default_rng(0)
    inner = tmp_path / "R3"
    inner.mkdir()
    (inner / "ydata-ymusic-rating-study-v1_0-train.txt").write_text(yahoo_lines(rng, 300, 20))
    (inner / "ydata-ymusic-rating-study-v1_0-test.txt").write_text(yahoo_lines(rng, 100, 10))
    dataset = load_yahoo_r3(tmp_path)
    assert (dataset.train.n_users, dataset.train.n_items) == (15_400, 1_000)
    assert len(dataset.train) == 6_000
    assert len(dataset.test) == 1_000
    assert set(dataset.test.ratings) == {1, 2, 3, 4, 5}
    assert dataset.users.names[0] == 1
    with (inner / "ydata-ymusic-rating-study-v1_0-train.txt").open("a") as file:
        file.write("15401\t3\t5\n")
    with pytest.raises(
        DataError,
        match=r"train\.txt, line 6001 must hold a user 1 to 15400, a song 1 to 1000 and a rating",
    ):
        load_yahoo_r3(tmp_path)
    with pytest.raises(
        DataError, match=r"Yahoo! licenses R3 to those who sign for it: ask at https"
    ):
        load_yahoo_r3(tmp_path / "nowhere")


def test_kuairec_is_loaded(tmp_path):
    big = pa.table(
        {
            "user_id": [7, 7, 9, 9],
            "video_id": [1, 2, 1, 3],
            "play_duration": [1] * 4,
            "video_duration": [1] * 4,
            "time": ["x"] * 4,
            "date": [1] * 4,
            "timestamp": [1.5, 2.5, None, 3.0],
            "watch_ratio": [2.5, 0.1, 2.0, 9.0],
        }
    )
    pc.write_csv(big, tmp_path / "big_matrix.csv")
    pc.write_csv(big.slice(0, 2), tmp_path / "small_matrix.csv")
    dataset = load_kuairec(tmp_path)
    assert dataset.train.labels.tolist() == [1, 0, 0, 1]
    assert dataset.users.names.tolist() == [7, 9]
    assert dataset.test.n_items == 3
    with pytest.raises(DataError, match=r"must hold big_matrix\.csv, got no such file\. Get Kuai"):
        load_kuairec(tmp_path / "nowhere")


def test_kuairand_is_loaded_and_an_invalid_label_is_named(tmp_path):
    log = pa.table(
        {
            "user_id": [0, 0, 3],
            "video_id": [5, 6, 5],
            "date": [1] * 3,
            "time_ms": [1, 2, 3],
            "is_click": [1, 0, 1],
            "long_view": [0, 0, 1],
        }
    )
    for name in (
        "log_standard_4_08_to_4_21_pure",
        "log_standard_4_22_to_5_08_pure",
        "log_random_4_22_to_5_08_pure",
    ):
        pc.write_csv(log, tmp_path / f"{name}.csv")
    dataset = load_kuairand(tmp_path)
    assert len(dataset.train) == 3  # the same pairs twice
    assert dataset.train.labels.sum() == 2
    assert load_kuairand(tmp_path, label="long_view").test.labels.sum() == 1
    pc.write_csv(
        log.set_column(4, "is_click", pa.array([1, 2, 0])),
        tmp_path / "log_random_4_22_to_5_08_pure.csv",
    )
    with pytest.raises(DataError, match=r"log_random.*csv, row 1: is_click must be 0 or 1, got 2"):
        load_kuairand(tmp_path)


@pytest.mark.parametrize("ids", [[30, 10, 30, 20], ["c", "a", "c", "b"]])
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_table_is_loaded_by_its_usual_column_names(tmp_path, ids, ending):
    table = pa.table(
        {"userId": ids, "item_id": [1, 2, 1, 9], "label": [0, 1, 1, 0], "timestamp": [4, 3, 2, 1]}
    )
    path = tmp_path / f"log.{ending}"
    write = pq.write_table if ending == "parquet" else pc.write_csv
    write(table, path)
    dataset = load_table(path)
    assert dataset.users.names.tolist() == sorted(set(ids))
    assert len(dataset.train) == 3
    assert dataset.users.names[dataset.train.users].tolist() == [ids[1], ids[0], ids[3]]
    assert dataset.train.labels.tolist() == [
        1,
        1,
        0,
    ]  # a repeated pair is positive if one of its rows is
    assert dataset.train.times.tolist() == [3, 2, 1]


def test_without_a_label_column_every_row_is_positive(tmp_path):
    pq.write_table(pa.table({"user": [1, 2], "item": ["x", "y"]}), tmp_path / "log.parquet")
    pq.write_table(pa.table({"user": [2], "item": ["z"], "label": [0]}), tmp_path / "test.parquet")
    dataset = load_table(tmp_path / "log.parquet", tmp_path / "test.parquet")
    assert dataset.train.labels.tolist() == [1, 1]
    assert (dataset.test.n_users, dataset.test.n_items) == (2, 3)
    pq.write_table(pa.table({"user": [1, None], "item": ["x", "y"]}), tmp_path / "bad.parquet")
    with pytest.raises(DataError, match=r"bad\.parquet, row 1: user must be an id"):
        load_table(tmp_path / "bad.parquet")


def test_datasets_are_loaded_by_name(coat, tmp_path):
    assert load_dataset("coat", coat).name == "coat"
    with pytest.raises(
        DataError, match="must be one of coat, yahoo_r3, kuairec, kuairand, got 'netflix'"
    ):
        load_dataset("netflix")
    with pytest.raises(DataError, match="Yahoo! licenses R3"):
        load_dataset("yahoo_r3")
    with pytest.raises(DataError, match=r"train\.ascii, got no such file\. Get Coat from https"):
        load_dataset("coat")
    other = tmp_path / "other"
    other.mkdir()
    pq.write_table(pa.table({"user": [1, 2], "item": [1, 1]}), other / "train.parquet")
    from_tables = load_dataset("kuairec", other)
    assert from_tables.name == "kuairec"
    assert len(from_tables.train) == 2


def test_an_index_refuses_unknown_ids_and_ids_of_another_type():
    index = Index.of(["b", "a"])
    with pytest.raises(DataError, match="users must be known from training, got 'x' at row 1"):
        index.rows("users", ["a", "x"])
    with pytest.raises(DataError, match="users must be ids as in the log"):
        index.rows("users", [1, 2])
    assert Index.of([5, 3, 5]).rows("items", np.array([5, 3])).tolist() == [1, 0]


def test_one_file_is_found_below_a_folder_and_two_are_ambiguous(tmp_path):
    nested = tmp_path / "files" / "coat"
    nested.mkdir(parents=True)
    (nested / "train.ascii").write_text("")
    assert find_file(tmp_path, "train.ascii", "Get it.") == nested / "train.ascii"
    (tmp_path / "train.ascii").write_text("")
    with pytest.raises(DataError, match=r"must hold one train\.ascii, got 2, such as"):
        find_file(tmp_path, "train.ascii", "Get it.")
    deep = tmp_path / "a" / "b" / "c" / "d"
    deep.mkdir(parents=True)
    (deep / "far.csv").write_text("")
    with pytest.raises(DataError, match=r"must hold far\.csv, got no such file\. Get it\."):
        find_file(tmp_path, "far.csv", "Get it.")
