"""`calibrank fit --segment`, and the commands that use its map."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

import calibrank as cr
from calibrank.maps import GroupedMap
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
    out = tmp_path / "map.json"
    by = ("--segment", "country", "--segment", "device")
    code, printed, error = call(
        "fit", tables / file, "--method", "gaussian", *OPTIONS[kind], *by, "-o", out
    )
    assert code == 0, error
    assert "Segments: 8 by country > device" in printed
    fitted = cr.load(out)
    expected = python_fit(tables, EVIDENCE[kind], "country", "device")
    assert isinstance(fitted, GroupedMap)
    assert fitted.keys == expected.keys
    np.testing.assert_allclose(fitted.intercepts, expected.intercepts, rtol=1e-6)
    np.testing.assert_allclose(fitted.slopes, expected.slopes, rtol=1e-6)


def test_positives_are_weighted_by_popularity_in_segments_too(
    call: Call, tables: Path, tmp_path: Path
) -> None:
    out = tmp_path / "map.json"
    code, _, error = call(
        "fit",
        tables / "log.parquet",
        "--method",
        "gaussian",
        "--item",
        "item_id",
        "--segment",
        "country",
        "-o",
        out,
    )
    assert code == 0, error
    fitted = cr.load(out)
    assert isinstance(fitted, GroupedMap)
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


@pytest.mark.parametrize("file", ["log.parquet", "log.csv"])
def test_apply_and_evaluate_use_the_columns(
    call: Call, tables: Path, saved: Path, tmp_path: Path, file: str
) -> None:
    code, _, error = call("apply", saved, tables / file, "-o", tmp_path / "out.parquet")
    assert code == 0, error
    table = pq.read_table(tables / "log.parquet")
    expected = cr.load(saved).predict(table["score"].to_numpy(), table)
    result = pq.read_table(tmp_path / "out.parquet")["probability"].to_numpy()
    np.testing.assert_allclose(result, expected, rtol=1e-12)
    code, printed, error = call("evaluate", tables / file, "--map", saved, "--json")
    assert code == 0, error
    loss = json.loads(printed)["metrics"]["LogLoss"]["value"]
    assert loss == pytest.approx(cr.LogLoss()(expected, table["label"].to_numpy()), rel=1e-9)


def test_apply_and_evaluate_read_the_features_of_a_map_with_covariates(
    call: Call, tables: Path, tmp_path: Path
) -> None:
    table = pq.read_table(tables / "log.parquet")
    scores, labels = table["score"].to_numpy(), table["label"].to_numpy()
    fitted = cr.Covariates("w").fit(scores, labels, table)
    fitted.save(tmp_path / "map.json")
    expected = fitted.predict(scores, table)
    for file in ("log.parquet", "log.csv"):
        out = tmp_path / f"{file}.parquet"
        code, _, error = call("apply", tmp_path / "map.json", tables / file, "-o", out)
        assert code == 0, error
        result = pq.read_table(out)["probability"].to_numpy()
        np.testing.assert_allclose(result, expected, rtol=1e-12)
    code, printed, error = call(
        "evaluate", tables / "log.parquet", "--map", tmp_path / "map.json", "--json"
    )
    assert code == 0, error
    loss = json.loads(printed)["metrics"]["LogLoss"]["value"]
    assert loss == pytest.approx(cr.LogLoss()(expected, labels), rel=1e-9)


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
    assert "must have a column device" in error


def test_with_random_labels_the_segments_come_from_these_alone(
    call: Call, tables: Path, tmp_path: Path
) -> None:
    out = tmp_path / "map.json"
    code, _, error = call(
        "fit",
        tables / "log.parquet",
        "--loss",
        "naive",
        "--method",
        "gaussian",
        "--anchor",
        tables / "random.parquet",
        "--segment",
        "country",
        "-o",
        out,
    )
    assert code == 0, error
    fitted = cr.load(out)
    assert isinstance(fitted, GroupedMap)
    assert fitted.record.base_rate_source == "random labels"
    assert sum(each.rows for each in fitted.segments) < 3_000


def test_a_known_rate_does_not_go_with_segments(call: Call, tables: Path, tmp_path: Path) -> None:
    code, _, error = call(
        "fit",
        tables / "log.parquet",
        "--loss",
        "naive",
        "--base-rate",
        "0.3",
        "--segment",
        "country",
        "-o",
        tmp_path / "map.json",
    )
    assert code != 0
    assert "--segment must not go with --base-rate" in " ".join(error.split())
