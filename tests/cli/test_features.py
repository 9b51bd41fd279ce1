"""`calibrank fit --feature`, `--category` and `--rank`, and the commands that use their maps."""

import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

import calibrank as cr
from calibrank.maps import AdditiveMap, TopMap
from calibrank.propensity import Popularity
from tests.cli.conftest import Call


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log with a number by item, a country by user, a code, and ranks; Parquet and CSV."""
    folder = tmp_path_factory.mktemp("features")
    rng = np.random.default_rng(0)
    rows = 8_000
    user = np.arange(rows) // 20
    item = rng.integers(0, 60, rows)
    country = np.array(["NL", "DE", ""])[user % 3]
    popularity = np.log1p(item.astype(float))
    scores = rng.normal(size=rows)
    z = scores - 3 + 0.5 * popularity + 1.0 * (country == "NL") + 0.6 * (item % 3 == 0)
    labels = rng.random(rows) < 1 / (1 + np.exp(-z))
    table = pa.table(
        {
            "user_id": user,
            "item_id": item,
            "score": scores,
            "label": labels.astype("int8"),
            "popularity": popularity,
            "country": pa.array([name or None for name in country], pa.string()),
            "code": item % 3,
            "w": rng.uniform(0.6, 1, rows),
            "rank": cr.list_ranks(scores, user),
        }
    )
    pq.write_table(table, folder / "log.parquet")
    pc.write_csv(table, folder / "log.csv")
    pq.write_table(table.slice(0, 3_000), folder / "random.parquet")
    return folder


def frame(tables: Path) -> tuple[pa.Table, np.ndarray, np.ndarray]:
    table = pq.read_table(tables / "log.parquet")
    return table, table["score"].to_numpy(), table["label"].to_numpy()


EVIDENCE = {
    "naive": lambda table: cr.naive(table["label"].to_numpy()),
    "propensity": lambda table: cr.ips(table["label"].to_numpy(), table["w"].to_numpy()),
    "popularity": lambda table: cr.ips(
        table["label"].to_numpy(), by_popularity(table["item_id"], table["label"])
    ),
}
OPTIONS = {
    "naive": ("--loss", "naive"),
    "propensity": ("--loss", "ips", "--propensity", "w"),
    "popularity": ("--loss", "ips", "--item", "item_id"),
}


def by_popularity(items: pa.ChunkedArray, labels: pa.ChunkedArray) -> np.ndarray:
    counts = np.bincount(items.to_numpy(), labels.to_numpy())
    model = Popularity()
    return model.propensity(model.exposure(counts)[items.to_numpy()])


@pytest.mark.parametrize(
    ("kind", "evidence"), [("csv", "naive"), *[("parquet", name) for name in EVIDENCE]]
)
def test_fit_is_that_of_python(
    tables: Path, tmp_path: Path, call: Call, kind: str, evidence: str
) -> None:
    out = tmp_path / "map.json"
    call(
        "fit", str(tables / f"log.{kind}"), "--feature", "popularity", "--feature", "country",
        "--category", "code", "--method", "gaussian", *OPTIONS[evidence], "-o", str(out),
    )  # fmt: skip
    fitted = cr.load(out)
    table, scores, _ = frame(tables)
    calibrator = cr.Covariates(("popularity", "country", "code"), categories=("code",))
    expected = calibrator.fit(scores, EVIDENCE[evidence](table), table)
    assert isinstance(fitted, AdditiveMap)
    assert fitted.categories == {"country": ("DE", "NL"), "code": ("0", "1", "2")}
    np.testing.assert_allclose(
        fitted.predict(scores, table), expected.predict(scores, table), rtol=1e-6
    )


def test_apply_evaluate_export_and_report_read_the_columns(
    tables: Path, tmp_path: Path, call: Call
) -> None:
    out = tmp_path / "map.json"
    log = str(tables / "log.parquet")
    options = ("--feature", "popularity", "--feature", "country", "--loss", "naive")
    code, printed, _ = call("fit", log, *options, "--method", "gaussian", "-o", str(out))
    assert code == 0
    assert "what is added to the log odds" in printed
    assert "(not seen)" in printed
    fitted = cr.load(out)
    table, scores, labels = frame(tables)
    expected = fitted.predict(scores, table)
    for kind in ("parquet", "csv"):
        written = tmp_path / f"applied.{kind}"
        call("apply", str(out), str(tables / f"log.{kind}"), "-o", str(written))
        read = pq.read_table(written) if kind == "parquet" else pc.read_csv(written)
        np.testing.assert_allclose(read["probability"].to_numpy(), expected, rtol=1e-9)
    told = json.loads(call("evaluate", log, "--map", str(out), "--json")[1])
    loss = told["metrics"]["LogLoss"]["value"]
    assert loss == pytest.approx(cr.LogLoss()(expected, labels))
    assert "CASE" in call("export", str(out), "--to", "sql", "--dialect", "duckdb")[1]
    vectors = json.loads(call("export", str(out), "--to", "json")[1])["vectors"]
    assert set(vectors[0]["features"]) == {"popularity", "country"}


def test_the_output_says_what_happens_to_the_order(
    tables: Path, tmp_path: Path, call: Call
) -> None:
    log, out = str(tables / "log.parquet"), str(tmp_path / "map.json")
    base = ("fit", log, "--loss", "naive", "--method", "gaussian", "-o", out)
    varies = call(*base, "--feature", "popularity", "--feature", "country")[2]
    assert "popularity varies within a user's list" in varies
    assert "so does the order within lists" in varies
    constant = call(*base, "--feature", "country", "--keep-order")[2]
    assert "each user's list keeps its order" in constant
    code, _, refused = call(*base, "--feature", "popularity", "--keep-order")
    assert code == 3
    assert "'popularity' must be constant within a list" in refused


def test_random_labels_anchor_the_map_and_fit_the_features(
    tables: Path, tmp_path: Path, call: Call
) -> None:
    out = tmp_path / "map.json"
    call(
        "fit", str(tables / "log.parquet"), "--anchor", str(tables / "random.parquet"), "--feature",
        "country", "--loss", "naive", "--method", "gaussian", "-o", str(out),
    )  # fmt: skip
    fitted = cr.load(out)
    assert fitted.record.base_rate_source == "random labels"
    table, scores, labels = frame(tables)
    few = table.slice(0, 3_000)
    biased = cr.Gaussian().fit(scores, labels)
    expected = cr.anchor_with_covariates(
        biased, scores[:3_000], labels[:3_000], few, "country", population=scores
    )
    # The command takes quantiles of the scores as the population.
    np.testing.assert_allclose(
        fitted.predict(scores, table), expected.predict(scores, table), atol=0.005
    )


def test_the_first_positions_get_a_curve_of_their_own(
    tables: Path, tmp_path: Path, call: Call
) -> None:
    out, applied = tmp_path / "map.json", tmp_path / "applied.parquet"
    log = str(tables / "log.parquet")
    code, printed, _ = call(
        "fit", log, "--anchor", str(tables / "random.parquet"), "--rank", "rank", "--top", "3",
        "--loss", "naive", "--method", "gaussian", "--model-name", "bpr", "-o", str(out),
    )  # fmt: skip
    assert code == 0
    assert "a curve of its own for the first 3 positions" in printed
    fitted = cr.load(out)
    assert isinstance(fitted, TopMap)
    assert (fitted.column, fitted.n, fitted.record.model_name) == ("rank", 3, "bpr")
    call("apply", str(out), log, "-o", str(applied))
    table, scores, _ = frame(tables)
    expected = fitted.predict(scores, table["rank"].to_numpy())
    found = pq.read_table(applied)["probability"].to_numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    at_top = table["rank"].to_numpy() <= 3
    assert np.abs(found - fitted.base.predict(scores))[at_top].max() > 1e-3
    np.testing.assert_allclose(found[~at_top], fitted.base.predict(scores[~at_top]), rtol=1e-9)


def test_uniform_labels_with_hardly_any_at_the_top_are_enough(
    tables: Path, tmp_path: Path, call: Call
) -> None:
    """Labels at all ranks say how the odds fall along the list."""
    random = pq.read_table(tables / "random.parquet")
    rank = random["rank"].to_numpy()
    at_top = np.flatnonzero(rank <= 2)[:3]
    rest = np.flatnonzero(rank > 2)
    few = tmp_path / "few.parquet"
    pq.write_table(random.take(np.concatenate([at_top, rest])), few)
    out = tmp_path / "map.json"
    code, _, _ = call(
        "fit", str(tables / "log.parquet"), "--anchor", str(few), "--rank", "rank", "--top", "2",
        "--loss", "naive", "--method", "gaussian", "-o", str(out),
    )  # fmt: skip
    assert code == 0
    fitted = cr.load(out)
    assert isinstance(fitted, TopMap)
    assert fitted.term is not None
    assert fitted.predict(0.5, 1) != pytest.approx(fitted.base.predict(0.5), abs=1e-3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--feature", "x"), "must have the feature column 'x', got 'user_id'"),
        (("--feature", "country", "--segment", "country"), "must not go with --segment"),
        (("--feature", "country", "--base-rate", "0.1"), "must not go with --base-rate"),
        (("--keep-order",), "--keep-order must go with --feature"),
        (("--rank", "rank"), "--rank must go with --anchor"),
        (("--top", "3"), "--top must go with --rank"),
    ],
)
def test_options_are_refused_where_they_mean_nothing(
    tables: Path, tmp_path: Path, call: Call, options: tuple[str, ...], message: str
) -> None:
    log = str(tables / "log.parquet")
    out = str(tmp_path / "map.json")
    code, _, refused = call("fit", log, "--loss", "naive", *options, "-o", out)
    assert code == (3 if "feature column" in message else 2)
    assert message in re.sub(r"\s+", " ", refused)
