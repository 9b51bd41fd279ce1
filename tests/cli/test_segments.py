"""`calibrank fit --segment`, and the commands that use its map."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

import calibrank as cr
from calibrank.maps import CalibrationMap, GroupedMap
from calibrank.propensity import Popularity
from tests.cli.conftest import Call


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log with a country (some are missing) and a numeric device, in Parquet and in CSV."""
    folder = tmp_path_factory.mktemp("segments")
    rng = np.random.default_rng(0)
    rows = 12_000
    country = rng.choice(["NL", "DE", ""], rows, p=[0.5, 0.4, 0.1])
    device = rng.integers(0, 3, rows)
    scores = rng.normal(size=rows)
    shift = 1.2 * (country == "NL") + 0.8 * (device == 2) - 1.5
    labels = rng.random(rows) < 1 / (1 + np.exp(-(scores + shift)))
    table = pa.table(
        {
            "score": scores,
            "label": labels.astype("int8"),
            "country": pa.array([name or None for name in country], pa.string()),
            "device": device,
            "item_id": rng.integers(0, 40, rows) ** 2,
            "w": rng.uniform(0.3, 1, rows),
        }
    )
    pq.write_table(table, folder / "log.parquet")
    pc.write_csv(table, folder / "log.csv")
    pq.write_table(table.slice(0, 3_000), folder / "random.parquet")
    return folder


def python_fit(tables: Path, evidence: object, *by: str) -> GroupedMap:
    table = pq.read_table(tables / "log.parquet")
    calibrator = cr.Segments(by, cr.Gaussian())
    return calibrator.fit(table["score"].to_numpy(), evidence(table), table)


def command_fit(call: Call, table: Path, out: Path, *options: object) -> GroupedMap:
    """The map that `calibrank fit --method gaussian` saves."""
    code, _, error = call("fit", table, "--method", "gaussian", *options, "-o", out)
    assert code == 0, error
    fitted = cr.load(out)
    assert isinstance(fitted, GroupedMap)
    return fitted


EVIDENCE = {
    "naive": lambda table: cr.naive(table["label"].to_numpy()),
    "propensity": lambda table: cr.ips(table["label"].to_numpy(), table["w"].to_numpy()),
}
OPTIONS = {
    "naive": ("--loss", "naive"),
    "propensity": ("--loss", "ips", "--propensity", "w"),
}


@pytest.mark.parametrize("file", ["log.parquet", "log.csv"])
@pytest.mark.parametrize("kind", ["naive", "propensity"])
def test_the_map_is_that_of_the_python_interface(
    call: Call, tables: Path, tmp_path: Path, kind: str, file: str
) -> None:
    by = ("--segment", "country", "--segment", "device")
    fitted = command_fit(call, tables / file, tmp_path / "map.json", *OPTIONS[kind], *by)
    expected = python_fit(tables, EVIDENCE[kind], "country", "device")
    assert fitted.keys == expected.keys
    np.testing.assert_allclose(fitted.intercepts, expected.intercepts, rtol=1e-6)
    np.testing.assert_allclose(fitted.slopes, expected.slopes, rtol=1e-6)


def test_the_segments_are_printed(call: Call, tables: Path, tmp_path: Path) -> None:
    _, printed, _ = call(
        "fit",
        tables / "log.parquet",
        *OPTIONS["naive"],
        "--segment",
        "country",
        "--segment",
        "device",
        "-o",
        tmp_path / "map.json",
    )
    assert "Segments: 8 by country > device" in printed
    assert "Log loss of the saved map, by country, device" in " ".join(printed.split())


def as_dictionaries(table: pa.Table) -> pa.Table:
    """Text as categories of pandas are saved: numbered by the smallest integers."""
    codes = table["country"].combine_chunks().dictionary_encode()
    codes = pa.DictionaryArray.from_arrays(codes.indices.cast(pa.int8()), codes.dictionary)
    return table.set_column(table.schema.names.index("country"), "country", codes)


def as_mixed_types(table: pa.Table) -> pa.Table:
    """Devices as floats, as pandas saves whole numbers with missing values."""
    device = table["device"].cast(pa.float64())
    return table.set_column(table.schema.names.index("device"), "device", device)


TYPES = {"text": lambda table: table, "categories": as_dictionaries, "floats": as_mixed_types}


@pytest.mark.parametrize("options", [("--loss", "naive"), ("--item", "item_id")], ids=str)
@pytest.mark.parametrize("first", TYPES)
def test_a_table_of_many_batches_is_read_once(
    call: Call,
    tables: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    first: str,
) -> None:
    """Files whose values have different types and dictionaries, in row groups of 500 rows."""
    table = pq.read_table(tables / "log.parquet")
    folder = tmp_path / "log"
    folder.mkdir()
    pq.write_table(TYPES[first](table.slice(0, 7_000)), folder / "0.parquet", row_group_size=500)
    pq.write_table(table.slice(7_000), folder / "1.parquet", row_group_size=500)
    read = []
    read_row_group = pq.ParquetFile.read_row_group

    def counted(*arguments: object, **named: object) -> pa.Table:
        result = read_row_group(*arguments, **named)
        read.append(result.num_rows)
        return result

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", counted)
    by = ("--segment", "country", "--segment", "device")
    fitted = command_fit(call, folder, tmp_path / "map.json", *options, *by)
    assert sum(read) == len(table)
    one_batch = tables / "log.parquet"
    expected = command_fit(call, one_batch, tmp_path / "expected.json", *options, *by)
    assert fitted.keys == expected.keys
    assert [each.rows for each in fitted.segments] == [each.rows for each in expected.segments]
    for mine, exact in zip(fitted.segments, expected.segments, strict=True):
        assert mine.error == pytest.approx(exact.error, rel=0.05)
    scores = table["score"].to_numpy()
    np.testing.assert_allclose(
        fitted.predict(scores, table), expected.predict(scores, table), atol=0.01
    )


@pytest.mark.parametrize("bad", [0, 11_999], ids=["first row", "last row"])
def test_an_invalid_row_is_an_error_in_whichever_batch(
    call: Call, tables: Path, tmp_path: Path, bad: int
) -> None:
    """Workers that wait for the bins of the first batch do not wait for ever."""
    table = pq.read_table(tables / "log.parquet")
    labels = table["label"].to_numpy().copy()
    labels[bad] = 3
    table = table.set_column(1, "label", pa.array(labels))
    pq.write_table(table, tmp_path / "bad.parquet", row_group_size=500)
    by = ("--segment", "country", "--loss", "naive")
    code, _, error = call("fit", tmp_path / "bad.parquet", *by, "-o", tmp_path / "map.json")
    assert code != 0
    assert f"row {bad}" in " ".join(error.split())


def test_positives_are_weighted_by_popularity_in_segments_too(
    call: Call, tables: Path, tmp_path: Path
) -> None:
    by = ("--item", "item_id", "--segment", "country")
    fitted = command_fit(call, tables / "log.parquet", tmp_path / "map.json", *by)
    # Each segment's mean probability is near its weighted rate, which is above its rate of labels.
    table = pq.read_table(tables / "log.parquet")
    chosen = table.filter(pa.compute.equal(table["country"], "NL"))
    mean = fitted.predict(chosen["score"].to_numpy(), chosen).mean()
    counts = np.bincount(table["item_id"].to_numpy(), table["label"].to_numpy())
    propensity = Popularity().propensity(Popularity().exposure(counts))[
        chosen["item_id"].to_numpy()
    ]
    rate = (chosen["label"].to_numpy() / propensity).mean()
    assert mean == pytest.approx(rate, rel=0.03)
    assert mean > 1.05 * chosen["label"].to_numpy().mean()


@pytest.fixture(scope="module")
def saved(tables: Path) -> Path:
    fitted = python_fit(tables, EVIDENCE["naive"], "country", "device")
    fitted.save(tables / "map.json")
    return tables / "map.json"


def by_segment(tables: Path) -> CalibrationMap:
    return python_fit(tables, EVIDENCE["naive"], "country", "device")


def with_covariates(tables: Path) -> CalibrationMap:
    table = pq.read_table(tables / "log.parquet")
    return cr.Covariates("w").fit(table["score"].to_numpy(), table["label"].to_numpy(), table)


@pytest.mark.parametrize("fit", [by_segment, with_covariates])
@pytest.mark.parametrize("file", ["log.parquet", "log.csv"])
def test_apply_and_evaluate_use_the_columns(
    call: Call, tables: Path, tmp_path: Path, fit: Callable[[Path], CalibrationMap], file: str
) -> None:
    fitted = fit(tables)
    fitted.save(tmp_path / "map.json")
    out = tmp_path / "out.parquet"
    code, _, error = call("apply", tmp_path / "map.json", tables / file, "-o", out)
    assert code == 0, error
    table = pq.read_table(tables / "log.parquet")
    expected = fitted.predict_rows(table["score"].to_numpy(), table.__getitem__)
    result = pq.read_table(out)["probability"].to_numpy()
    np.testing.assert_allclose(result, expected, rtol=1e-12)
    code, printed, error = call("evaluate", tables / file, "--map", tmp_path / "map.json", "--json")
    assert code == 0, error
    loss = json.loads(printed)["metrics"]["LogLoss"]["value"]
    assert loss == pytest.approx(cr.LogLoss()(expected, table["label"].to_numpy()), rel=1e-9)


def with_categories(tables: Path) -> CalibrationMap:
    table = pq.read_table(tables / "log.parquet")
    method = cr.Covariates("country")
    return method.fit(table["score"].to_numpy(), table["label"].to_numpy(), table)


@pytest.mark.filterwarnings("always::calibrank.ScoreShiftWarning")
@pytest.mark.parametrize("fit", [by_segment, with_categories])
def test_segments_that_the_map_does_not_know_are_warned_about(
    call: Call, tables: Path, tmp_path: Path, fit: Callable[[Path], CalibrationMap]
) -> None:
    saved, given = tmp_path / "map.json", tmp_path / "lower.parquet"
    fit(tables).save(saved)
    table = pq.read_table(tables / "random.parquet")
    names = [None if name is None else name.lower() for name in table["country"].to_pylist()]
    place = table.column_names.index("country")
    pq.write_table(table.set_column(place, "country", [names]), given)
    known = sum(name is not None for name in names)
    message = f"{known:,} of {known:,} rows have a country that the map does not know, such as 'nl'"
    code, _, error = call("apply", saved, given, "-o", tmp_path / "out.parquet")
    assert code == 0
    assert message in " ".join(error.split())
    code, _, error = call("evaluate", given, "--map", saved)
    assert code == 0, error
    assert message in " ".join(error.split())


def test_a_torch_program_takes_the_number_of_the_segment(
    call: Call, saved: Path, tmp_path: Path
) -> None:
    torch = pytest.importorskip("torch")
    out = tmp_path / "map.pt2"
    code, _, error = call("export", saved, "--to", "torch", "--dtype", "float64", "-o", out)
    assert code == 0, error
    fitted = cr.load(saved)
    rows = {"country": ["NL", "DE", "FR"], "device": [1, 2, 0]}
    scores = np.array([0.1, 0.2, 0.3])
    program = torch.export.load(out).module()
    result = program(torch.tensor(scores), torch.tensor(fitted.segment_index(rows)))
    np.testing.assert_allclose(result.numpy(), fitted.predict(scores, rows), rtol=1e-9)


def test_a_table_without_the_column_is_refused(
    call: Call, tables: Path, saved: Path, tmp_path: Path
) -> None:
    table = pq.read_table(tables / "log.parquet").drop_columns(["device"])
    pq.write_table(table, tmp_path / "without.parquet")
    code, _, error = call(
        "apply", saved, tmp_path / "without.parquet", "-o", tmp_path / "out.parquet"
    )
    assert code != 0
    assert "must have a column 'device'" in error


def test_with_random_labels_the_segments_come_from_these_alone(
    call: Call, tables: Path, tmp_path: Path
) -> None:
    options = (*OPTIONS["naive"], "--anchor", tables / "random.parquet", "--segment", "country")
    fitted = command_fit(call, tables / "log.parquet", tmp_path / "map.json", *options)
    assert fitted.record.base_rate_source == "random labels"
    assert sum(each.rows for each in fitted.segments) < 3_000


def test_a_known_rate_does_not_go_with_segments(call: Call, tables: Path, tmp_path: Path) -> None:
    options = (*OPTIONS["naive"], "--base-rate", "0.3", "--segment", "country")
    code, _, error = call("fit", tables / "log.parquet", *options, "-o", tmp_path / "map.json")
    assert code != 0
    assert "--segment must not go with --base-rate" in " ".join(error.split())
