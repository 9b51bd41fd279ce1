"""The command `calibrank export`."""

import warnings
from contextlib import chdir
from pathlib import Path

import numpy as np
import pytest

import calibrank as cr
from calibrank.export import to_json, to_onnx, to_sql
from calibrank.maps import CalibrationMap
from tests.cli.running import run_here

pytest.importorskip("rich")


@pytest.fixture
def folder(fitted: CalibrationMap, tmp_path: Path) -> Path:
    """A folder with a saved map."""
    fitted.save(tmp_path / "map.json")
    return tmp_path


def export(folder: Path, *arguments: str) -> tuple[int, str, str]:
    """Exit code, output and errors of an export of the saved map."""
    with chdir(folder):
        return run_here("export", "map.json", *arguments)


def test_sql_and_json_are_printed(fitted: CalibrationMap, folder: Path) -> None:
    printed = export(folder, "--to", "sql", "--dialect", "spark", "--score", "s")
    assert printed == (0, to_sql(fitted, "spark", "s") + "\n", "")
    assert export(folder, "--to", "json")[1] == to_json(fitted)


def test_sql_is_written_to_a_file(fitted: CalibrationMap, folder: Path) -> None:
    assert export(folder, "--to", "sql", "--dialect", "duckdb", "-o", "map.sql")[0] == 0
    assert (folder / "map.sql").read_text() == to_sql(fitted, "duckdb") + "\n"


def test_onnx_is_written_to_a_file(fitted: CalibrationMap, folder: Path) -> None:
    pytest.importorskip("onnx")
    code, _, errors = export(folder, "--to", "onnx", "-o", "map.onnx")
    assert code == 0, errors
    expected = to_onnx(fitted).SerializeToString()
    assert (folder / "map.onnx").read_bytes() == expected


def test_torch_is_written_to_a_file(fitted: CalibrationMap, folder: Path) -> None:
    torch = pytest.importorskip("torch")
    code, printed, errors = export(folder, "--to", "torch", "-o", "map.pt2")
    assert (code, printed) == (0, "Wrote map.pt2\n"), errors
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.load(folder / "map.pt2").module()
    scores = np.linspace(-2, 2, 9)
    probabilities = program(torch.linspace(-2, 2, 9))
    np.testing.assert_allclose(probabilities, fitted.predict(scores), atol=1e-6)


def test_every_feature_is_an_input_of_its_own_in_torch(folder: Path) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    scores = rng.normal(size=600)
    columns = {
        "x": rng.normal(size=600),
        "y": rng.normal(size=600),
        "country": rng.choice(["de", "fr"], 600),
        "device": rng.choice(["phone", "tv", "web"], 600),
    }
    shift = 2 * columns["x"] - columns["y"] + (columns["country"] == "de")
    shift += 2 * (columns["device"] == "tv")
    labels = (rng.random(600) < 1 / (1 + np.exp(-scores - shift))).astype(float)
    model = cr.Platt() + cr.Smooth("x", knots=4) + cr.Smooth("y", knots=4)
    model = model + cr.Level("country") + cr.Level("device")
    fitted = model.fit(scores, labels, columns)
    fitted.save(folder / "map.json")
    code, _, errors = export(folder, "--to", "torch", "-o", "features.pt2")
    assert code == 0, errors
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.load(folder / "features.pt2").module()
    numbers = (scores, columns["x"], columns["y"])
    inputs = [torch.tensor(values, dtype=torch.float32) for values in numbers]
    for name, keys in (("country", ["de", "fr"]), ("device", ["phone", "tv", "web"])):
        # Numbers of levels count from 1.
        inputs.append(torch.tensor([keys.index(value) + 1 for value in columns[name].tolist()]))
    found = program(*inputs).numpy()
    np.testing.assert_allclose(found, fitted.predict(scores, columns), atol=1e-5)


def test_missing_options_are_named(folder: Path) -> None:
    code, _, errors = export(folder, "--to", "sql")
    assert (code, errors) == (
        2,
        (
            "calibrank: --to sql must have a dialect, got none. "
            "Name one of: spark, duckdb, postgresql, sqlite, bigquery, snowflake, clickhouse, "
            "trino\n"
        ),
    )
    code, _, errors = export(folder, "--to", "onnx")
    assert (code, errors) == (
        2,
        "calibrank: --to onnx must have a file to write, got none. Name one with -o.\n",
    )
    code, _, errors = export(folder, "--to", "sql", "--dialect", "oracle")
    assert code == 2
    assert "oracle" in errors
