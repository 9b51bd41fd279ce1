"""`calibrank control`: the threshold of the library, from a table."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import calibrank as cr
from calibrank.decisions import Gap, PooledPrecision, Precision, Rank, Recall, Threshold
from tests.cli.conftest import Call
from tests.cli.running import one_line
from tests.test_decisions import ROWS, draw


def test_the_command_finds_the_threshold_of_the_library(call: Call, tmp_path: Path) -> None:
    scores, labels, codes = draw(400, np.random.default_rng(6))
    table = {"user_id": codes, "score": scores, "label": labels, "shown": np.full(len(codes), 0.5)}
    pq.write_table(pa.table(table), tmp_path / "random.parquet")
    fitted = cr.Platt().fit(scores[1:], labels[1:])
    fitted.save(tmp_path / "map.json")
    command = ["control", tmp_path / "random.parquet", "--map", tmp_path / "map.json"]
    expected = cr.control(fitted.predict(scores), labels, codes, Precision(0.65), longest=5)
    options = ["--promise", "Precision(0.65)", "--longest", "5"]
    code, text, error = call(*command, *options, "--json")
    assert code == 0, error
    assert json.loads(text)["threshold"] == expected.threshold
    code, _, error = call(*command, *options, "--propensity", "shown")
    assert code == 3
    assert "must be of all candidates for Precision, got a sample" in one_line(error)
    pooled = PooledPrecision(0.5, smallest_propensity=0.5)
    evidence = cr.impressions(labels, table["shown"])
    expected = cr.control(fitted.predict(scores), evidence, codes, pooled, longest=ROWS)
    options = ["--promise", repr(pooled), "--longest", str(ROWS), "--propensity", "shown"]
    assert json.loads(call(*command, *options, "--json")[1])["threshold"] == expected.threshold
    assert "with 95% confidence" in one_line(call(*command, *options)[1])


def test_the_command_takes_probabilities(call: Call, tmp_path: Path) -> None:
    values, labels, codes = draw(400, np.random.default_rng(7))
    table = {"user_id": codes, "probability": values, "label": labels}
    pq.write_table(pa.table(table), tmp_path / "random.parquet")
    table_path = tmp_path / "random.parquet"
    result = call("control", table_path, "--promise", "Precision(0.65)", "--json")
    expected = cr.control(values, labels, codes, Precision(0.65))
    assert json.loads(result[1])["threshold"] == expected.threshold


def test_the_command_takes_promises_and_cuts(call: Call, tmp_path: Path) -> None:
    values, labels, codes = draw(400, np.random.default_rng(7))
    path = tmp_path / "random.parquet"
    pq.write_table(pa.table({"user_id": codes, "probability": values, "label": labels}), path)
    promises = ["--promise", "Precision(0.55)", "--promise", "Recall(0.5)"]
    cuts = ["--cut", "threshold", "--cut", "Rank", "--cut", "gap"]
    found = json.loads(call("control", path, *promises, *cuts, "--abstain", "--json")[1])
    kinds = [Threshold(), Rank(), Gap()]
    both = [Precision(0.55), Recall(0.5)]
    expected = cr.control(values, labels, codes, both, cut=kinds, abstain=True)
    assert found == json.loads(json.dumps(expected.content()))
    assert found["length"] == min(filter(None, found["length_by_cut"].values()))
    code, _, error = call("control", path, "--cut", "best")
    assert code == 3
    assert "cut must be one of Threshold, Rank, Gap, got 'best'" in one_line(error)


def maps_with_columns(
    scores: np.ndarray, labels: np.ndarray, columns: dict[str, np.ndarray]
) -> dict[str, cr.CalibrationMap]:
    """A map by segment and one with a number and a level."""
    country = {"country": columns["country"]}
    return {
        "grouped": (cr.Platt() + cr.Level("country")).fit(scores, labels, country),
        "additive": (cr.Platt() + cr.Smooth("age") + cr.Level("country")).fit(
            scores, labels, columns
        ),
    }


@pytest.mark.parametrize("kind", ["grouped", "additive"])
def test_the_command_reads_the_columns_of_the_map(call: Call, tmp_path: Path, kind: str) -> None:
    rng = np.random.default_rng(8)
    scores, labels, codes = draw(300, rng)
    columns = {"age": rng.normal(size=len(codes)), "country": np.where(codes % 2, "DE", "NL")}
    fitted = maps_with_columns(scores, labels * (codes % 2), columns)[kind]
    fitted.save(tmp_path / "map.json")
    table = {"user_id": codes, "score": scores, "label": labels, **columns}
    pq.write_table(pa.table(table), tmp_path / "random.parquet")
    command = ["control", tmp_path / "random.parquet", "--map", tmp_path / "map.json"]
    code, text, error = call(*command, "--promise", "Precision(0.6)", "--json")
    assert code == 0, error
    probabilities = fitted.predict(scores, columns)
    expected = cr.control(probabilities, labels, codes, Precision(0.6))
    assert json.loads(text)["threshold"] == expected.threshold
    average = cr.control(fitted.without_terms().predict(scores), labels, codes, Precision(0.6))
    assert expected.threshold != average.threshold


def test_the_command_names_a_missing_column_of_the_map(call: Call, tmp_path: Path) -> None:
    scores, labels, codes = draw(50, np.random.default_rng(9))
    table = {"user_id": codes, "score": scores, "label": labels}
    pq.write_table(pa.table(table), tmp_path / "random.parquet")
    country = {"country": np.where(codes % 2, "DE", "NL")}
    (cr.Platt() + cr.Level("country")).fit(scores, labels, country).save(tmp_path / "map.json")
    command = ["control", tmp_path / "random.parquet", "--map", tmp_path / "map.json"]
    code, _, error = call(*command)
    assert code == 3
    assert "country" in one_line(error)
