"""`calibrank inspect --score-at`: raw cutoffs, checked in a database."""

import json
from pathlib import Path

import duckdb
import numpy as np
import pytest

import calibrank as cr
from tests.cli.conftest import Call
from tests.cli.running import one_line

RNG = np.random.default_rng(0)
SCORES = RNG.normal(size=3_000)
COUNTRY = RNG.choice(["NL", "it's", "BE"], 3_000)
CITY = RNG.choice(["a", "b"], 3_000)
LABELS = RNG.random(3_000) < 1 / (1 + np.exp(1 - SCORES - (COUNTRY == "NL") + (CITY == "a")))
ROWS = {"country": COUNTRY, "city": CITY}


def test_a_map_of_the_score_has_one_cutoff(call: Call, tmp_path: Path) -> None:
    fitted = cr.Gaussian().fit(SCORES, LABELS)
    fitted.save(tmp_path / "map.json")
    code, text, error = call("inspect", tmp_path / "map.json", "--score-at", "0.5")
    assert code == 0, error
    low = fitted.score_at(0.5).low
    assert f'"min_score": {low!r}' in text
    assert f"SQL: score >= {low!r}" in text
    limit = float(text.partition("rank-score-drop-limit: ")[2].split()[0])
    assert limit == np.nextafter(low, -np.inf)
    code, _, error = call("inspect", tmp_path / "map.json", "--score-at", "2")
    assert "probability must lie in [0, 1], got 2" in one_line(error)


@pytest.mark.parametrize("columns", [("country",), ("country", "city")])
def test_the_condition_in_sql_is_the_map(
    call: Call, tmp_path: Path, columns: tuple[str, ...]
) -> None:
    fitted = (cr.Platt() + cr.Level(*columns)).fit(SCORES, LABELS, ROWS)
    fitted.save(tmp_path / "map.json")
    code, text, error = call("inspect", tmp_path / "map.json", "--score-at", "0.4", "--json")
    assert code == 0, error
    country = np.append(COUNTRY[:500], ["other", "NL"])
    city = np.append(CITY[:500], ["a", "other"])
    scores = SCORES[:502]
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t (i INT, score DOUBLE, country VARCHAR, city VARCHAR)")
        rows = zip(range(502), scores.tolist(), country.tolist(), city.tolist(), strict=True)
        connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", list(rows))
        connection.execute("INSERT INTO t VALUES (502, 10, NULL, NULL)")
        condition = json.loads(text)["settings"]["SQL"]
        query = f"SELECT i FROM t WHERE {condition} ORDER BY i"  # noqa: S608  (our own text)
        found = connection.execute(query).fetchall()
    expected = fitted.predict(scores, {"country": country, "city": city}) >= 0.4
    assert [i for (i,) in found] == np.flatnonzero(expected).tolist()
    _, printed, _ = call("inspect", tmp_path / "map.json", "--score-at", "0.4")
    assert "it's" in printed


def test_other_terms_are_refused(call: Call, tmp_path: Path) -> None:
    rows = {"country": COUNTRY, "price": RNG.normal(size=3_000)}
    fitted = (cr.Platt() + cr.Level("country") + cr.Smooth("price")).fit(SCORES, LABELS, rows)
    fitted.save(tmp_path / "map.json")
    code, _, error = call("inspect", tmp_path / "map.json", "--score-at", "0.4")
    assert code == 2
    assert "without terms or with one level, got one with country, price" in one_line(error)


def test_an_unreachable_probability_names_range_and_level(call: Call, tmp_path: Path) -> None:
    fitted = (cr.Histogram(bins=3) + cr.Level("country")).fit(SCORES, LABELS, ROWS)
    fitted.save(tmp_path / "map.json")
    code, _, error = call("inspect", tmp_path / "map.json", "--score-at", "0.0001")
    assert code == 3
    assert "level BE: probability must be one that the map reaches, 0." in one_line(error)
