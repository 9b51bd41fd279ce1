"""`calibrank fit --segment` and `--feature`, and the commands that use their maps."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

import calibrank as cr
from calibrank._internal.logit import expit, logit
from calibrank.cli.rendering import _values
from calibrank.maps import LevelTerm
from calibrank.model import Model
from calibrank.propensity import Popularity
from tests.cli.conftest import Call
from tests.cli.running import one_line

COLUMNS = ("country", "device", "popularity", "premium")


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log with a country, a numeric device, a number by item and a boolean; Parquet and CSV."""
    folder = tmp_path_factory.mktemp("terms")
    rng = np.random.default_rng(0)
    rows = 8_000
    item = rng.integers(0, 60, rows)
    country = rng.choice(["NL", "DE", "FR"], rows, p=[0.5, 0.4, 0.1])
    device = rng.integers(0, 3, rows)
    popularity = np.log1p(item.astype(float))
    scores = rng.normal(size=rows)
    z = scores - 3.5 + 0.5 * popularity + 1.2 * (country == "NL") + 0.8 * (device == 2)
    labels = rng.random(rows) < 1 / (1 + np.exp(-z))
    table = pa.table(
        {
            "user_id": np.arange(rows) // 20,
            "item_id": item**2,
            "score": scores,
            "label": labels.astype("int8"),
            "country": country,
            "device": device,
            "popularity": popularity,
            "premium": item % 3 == 0,
            "w": rng.uniform(0.6, 1, rows),
        }
    )
    pq.write_table(table, folder / "log.parquet")
    pc.write_csv(table, folder / "log.csv")
    return folder


def rows_of(tables: Path) -> dict[str, np.ndarray]:
    table = pq.read_table(tables / "log.parquet")
    return {name: np.array(table[name].to_pylist()) for name in table.column_names}


def command_fit(call: Call, table: Path, out: Path, *options: object) -> cr.CalibrationMap:
    code, _, error = call("fit", table, *options, "-o", out)
    assert code == 0, error
    return cr.load(out)


def popularity_of(rows: dict[str, np.ndarray]) -> np.ndarray:
    counts = np.bincount(rows["item_id"], rows["label"])
    return Popularity().propensity(Popularity().exposure(counts, counts.max())[rows["item_id"]])


EVIDENCE: dict[str, Callable[[dict[str, np.ndarray]], cr.Evidence]] = {
    "naive": lambda rows: cr.naive(rows["label"]),
    "propensity": lambda rows: cr.ips(rows["label"], rows["w"]),
    "popularity": lambda rows: cr.ips(rows["label"], popularity_of(rows)),
    "policy": lambda rows: cr.impressions(rows["label"], rows["w"]),
}
LOGS = {
    "naive": ("--log", "impressions"),
    "propensity": ("--propensity", "w"),
    "popularity": ("--item", "item_id"),
    "policy": ("--log", "policy", "--propensity", "w"),
}
TERMS: dict[str, tuple[tuple[str, ...], tuple[Any, ...]]] = {
    "level": (("--segment", "country"), (cr.Level("country"),)),
    "nested": (("--segment", "country > device"), (cr.Level("country", "device"),)),
    "crossed": (
        ("--segment", "country", "--segment", "device"),
        (cr.Level("country"), cr.Level("device")),
    ),
    "number": (("--feature", "popularity"), (cr.Smooth("popularity"),)),
    "all": (
        ("--segment", "country > device", "--feature", "popularity", "--feature", "premium"),
        (cr.Level("country", "device"), cr.Smooth("popularity"), cr.Level("premium")),
    ),
}


@pytest.mark.parametrize("kind", LOGS)
@pytest.mark.parametrize("terms", TERMS)
def test_every_term_goes_with_every_log_as_in_python(
    call: Call, tables: Path, tmp_path: Path, terms: str, kind: str
) -> None:
    options, specs = TERMS[terms]
    file = tables / ("log.csv" if kind == "naive" else "log.parquet")
    given = (*LOGS[kind], *options, "--method", "gaussian")
    fitted = command_fit(call, file, tmp_path / "map.json", *given)
    rows = rows_of(tables)
    # CSV has true and false in lower case, as levels of booleans are written everywhere.
    expected = Model(cr.Gaussian(), specs).fit(rows["score"], EVIDENCE[kind](rows), rows)
    assert fitted.columns == expected.columns
    assert fitted.record.recipe == expected.record.recipe
    np.testing.assert_allclose(
        fitted.predict(rows["score"], rows), expected.predict(rows["score"], rows), rtol=2e-5
    )


@pytest.mark.parametrize("method", ["auto", "isotonic", "spline", "platt"])
def test_every_method_takes_terms(call: Call, tables: Path, tmp_path: Path, method: str) -> None:
    given = ("--log", "impressions", "--segment", "country", "--feature", "popularity")
    fitted = command_fit(
        call, tables / "log.parquet", tmp_path / "map.json", *given, "--method", method
    )
    rows = rows_of(tables)
    loss = cr.LogLoss()(fitted.predict(rows["score"], rows), rows["label"])
    alone = cr.LogLoss()(fitted.without_terms().predict(rows["score"]), rows["label"])
    assert loss < alone - 0.01


def test_terms_are_printed_as_rates(call: Call, tables: Path, tmp_path: Path) -> None:
    options = (*TERMS["all"][0], "--item", "item_id", "--method", "gaussian")
    _, text, _ = call("fit", tables / "log.parquet", *options, "-o", tmp_path / "map.json")
    assert "instead of" in text
    assert "NL > 2" in text
    assert "with country, device, popularity, premium" in one_line(text)
    # The band is that of the curve.
    assert "Mean probability under alternative assumptions" in text
    assert cr.load(tmp_path / "map.json").record.sensitivity is not None
    _, text, _ = call("inspect", tmp_path / "map.json")
    assert "instead of" in text


def as_dictionaries(table: pa.Table) -> pa.Table:
    """Text as categories of pandas are saved: numbered by the smallest integers."""
    codes = table["country"].combine_chunks().dictionary_encode()
    codes = pa.DictionaryArray.from_arrays(codes.indices.cast(pa.int8()), codes.dictionary)
    return table.set_column(table.schema.names.index("country"), "country", codes)


def as_floats(table: pa.Table) -> pa.Table:
    """Devices as floats, as pandas saves whole numbers with missing values."""
    device = table["device"].cast(pa.float64())
    return table.set_column(table.schema.names.index("device"), "device", device)


TYPES = {"text": lambda table: table, "categories": as_dictionaries, "floats": as_floats}


@pytest.mark.parametrize("options", [("--log", "impressions"), ("--item", "item_id")], ids=str)
@pytest.mark.parametrize("first", TYPES)
def test_levels_of_a_table_of_many_batches_are_read_once(
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
    pq.write_table(TYPES[first](table.slice(0, 5_000)), folder / "0.parquet", row_group_size=500)
    pq.write_table(table.slice(5_000), folder / "1.parquet", row_group_size=500)
    read = []
    read_row_group = pq.ParquetFile.read_row_group

    def counted(*arguments: object, **named: object) -> pa.Table:
        result = read_row_group(*arguments, **named)
        read.append(result.num_rows)
        return result

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", counted)
    by = ("--segment", "country > device", "--method", "gaussian")
    fitted = command_fit(call, folder, tmp_path / "map.json", *options, *by)
    assert sum(read) == len(table)
    one = command_fit(call, tables / "log.parquet", tmp_path / "one.json", *options, *by)
    (found,), (expected,) = fitted.terms, one.terms
    assert isinstance(found, LevelTerm)
    assert isinstance(expected, LevelTerm)
    assert found.keys == expected.keys
    # Bins are placed by the first rows, and workers may add up in another order.
    np.testing.assert_allclose(found.intercepts, expected.intercepts, atol=0.01)


@pytest.mark.parametrize("terms", TERMS)
@pytest.mark.parametrize("file", ["log.parquet", "log.csv"])
def test_other_commands_read_the_columns(
    call: Call, tables: Path, tmp_path: Path, terms: str, file: str
) -> None:
    rows = rows_of(tables)
    specs = TERMS[terms][1]
    fitted = Model(cr.Gaussian(), specs).fit(rows["score"], rows["label"], rows)
    saved = tmp_path / "map.json"
    fitted.save(saved)
    out = tmp_path / f"out-{file}"
    code, _, error = call("apply", saved, tables / file, "-o", out)
    assert code == 0, error
    expected = fitted.predict(rows["score"], rows)
    written = pc.read_csv(out) if file.endswith(".csv") else pq.read_table(out)
    result = written["probability"].to_numpy()
    np.testing.assert_allclose(result, expected, rtol=1e-9)
    code, printed, error = call("evaluate", tables / file, "--map", saved, "--json")
    assert code == 0, error
    loss = json.loads(printed)["metrics"]["LogLoss"]["value"]
    assert loss == pytest.approx(cr.LogLoss()(expected, rows["label"]), rel=1e-9)
    assert "CASE" in call("export", saved, "--to", "sql", "--dialect", "duckdb")[1]


def test_a_map_is_serialized_once_for_many_files(
    call: Call, tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = rows_of(tables)
    (cr.Platt() + cr.Level("country")).fit(rows["score"], rows["label"], rows).save(
        tmp_path / "map.json"
    )
    table = pq.read_table(tables / "log.parquet")
    (tmp_path / "days").mkdir()
    for day in range(5):
        pq.write_table(table.slice(day * 100, 100), tmp_path / "days" / f"{day}.parquet")
    calls = []
    to_dict = cr.CalibrationMap.to_dict
    monkeypatch.setattr(
        cr.CalibrationMap, "to_dict", lambda fitted: calls.append(1) or to_dict(fitted)
    )
    assert call("apply", tmp_path / "map.json", tmp_path / "days", "-o", tmp_path / "out")[0] == 0
    assert len(calls) == 1


@pytest.mark.filterwarnings("always::calibrank.errors.ScoreShiftWarning")
def test_levels_that_the_map_does_not_know_are_warned_about(
    call: Call, tables: Path, tmp_path: Path
) -> None:
    rows = rows_of(tables)
    saved, given = tmp_path / "map.json", tmp_path / "lower.parquet"
    (cr.Platt() + cr.Level("country")).fit(rows["score"], rows["label"], rows).save(saved)
    table = pq.read_table(tables / "log.parquet").slice(0, 100)
    names = [name.lower() for name in table["country"].to_pylist()]
    place = table.column_names.index("country")
    pq.write_table(table.set_column(place, "country", [names]), given)
    for arguments in (("apply", saved, given, "-o", tmp_path / "o.parquet"),
                      ("evaluate", given, "--map", saved)):  # fmt: skip
        code, _, error = call(*arguments)
        assert code == 0, error
        assert "100 of 100 rows have a country that the map does not know" in one_line(error)


def test_a_torch_program_takes_the_number_of_the_level(
    call: Call, tables: Path, tmp_path: Path
) -> None:
    torch = pytest.importorskip("torch")
    rows = rows_of(tables)
    model = cr.Platt() + cr.Level("country", "device") + cr.Smooth("popularity")
    model.fit(rows["score"], rows["label"], rows).save(tmp_path / "map.json")
    out = tmp_path / "map.pt2"
    options = ("--to", "torch", "-o", out)
    code, _, error = call("export", tmp_path / "map.json", *options)
    assert code == 0, error
    fitted = cr.load(tmp_path / "map.json")
    few = {"country": ["NL", "DE", "BE"], "device": [1, 2, 0], "popularity": [0.5, 1.0, 2.0]}
    scores = np.array([0.1, 0.2, 0.3])
    (numbers,) = fitted.level_index(few).values()
    program = torch.export.load(out).module()
    inputs = (
        torch.tensor(scores, dtype=torch.float32),
        torch.tensor(numbers),
        torch.tensor(few["popularity"]),
    )
    result = program(*inputs)
    np.testing.assert_allclose(result.numpy(), fitted.predict(scores, few), rtol=1e-5)


@pytest.mark.parametrize("bad", [700, 7_900])
@pytest.mark.parametrize(
    ("column", "value", "message"),
    [("label", 3, "label must be 0 or 1"), ("country", None, "country must not be missing")],
)
def test_an_invalid_row_is_named(
    call: Call, tables: Path, tmp_path: Path, column: str, value: object, message: str, bad: int
) -> None:
    table = pq.read_table(tables / "log.parquet")
    values = table[column].to_pylist()
    values[bad] = value
    table = table.set_column(table.column_names.index(column), column, [values])
    pq.write_table(table, tmp_path / "bad.parquet", row_group_size=500)
    options = ("--segment", "country", "--log", "impressions")
    code, _, error = call("fit", tmp_path / "bad.parquet", *options, "-o", tmp_path / "map.json")
    assert code == 3
    assert f"row {bad}: {message}" in one_line(error)


def test_a_table_without_the_column_is_refused(call: Call, tables: Path, tmp_path: Path) -> None:
    rows = rows_of(tables)
    (cr.Platt() + cr.Level("device")).fit(rows["score"], rows["label"], rows).save(
        tmp_path / "map.json"
    )
    table = pq.read_table(tables / "log.parquet").drop_columns(["device"])
    pq.write_table(table, tmp_path / "without.parquet")
    given = (tmp_path / "without.parquet", "-o", tmp_path / "out.parquet")
    code, _, error = call("apply", tmp_path / "map.json", *given)
    assert code == 3
    assert "must have a column 'device'" in error
    fit = ("fit", tmp_path / "without.parquet", "--log", "impressions")
    for option, what in (("--segment", "segment"), ("--feature", "feature")):
        code, _, error = call(*fit, option, "device")
        assert code == 3
        assert f"must have the {what} column 'device', got 'user_id'" in one_line(error)


def test_levels_are_printed_so_that_together_they_have_the_rate() -> None:
    """A giant country must not look as far from the rate as the typical one is."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=8_000)
    country = rng.choice(["US", "FR", "DE"], 8_000, p=[0.9, 0.05, 0.05])
    labels = rng.random(8_000) < expit(scores - 2 - (country != "US"))
    fitted = (cr.Platt() + cr.Level("country")).fit(scores, labels, {"country": country})
    middle = float(logit(labels.mean()))
    found = _values(fitted.terms[0], middle)
    weights = [int(count.replace(",", "")) for _, _, count in found]
    values = [expit(log_odds) for _, log_odds, _ in found]
    assert np.average(values, weights=weights) == pytest.approx(labels.mean(), rel=1e-6)
    assert found[-1][0] == "US"
