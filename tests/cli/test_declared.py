"""Labels that options declare, on every command that reads labels."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import calibrank as cr
from tests.cli.conftest import Call
from tests.cli.running import one_line


@pytest.fixture(scope="module")
def rated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    score = rng.normal(size=2_000)
    rating = np.clip(np.rint(3 + score + rng.normal(size=2_000)), 1, 5)
    shown = rng.integers(1, 20, 2_000)
    clicks = rng.binomial(shown, 1 / (1 + np.exp(1 - score)))
    columns = {
        "score": score,
        "rating": rating,
        "n": shown,
        "c": clicks,
        "judge": 1 / (1 + np.exp(-score)),
        "p": rng.uniform(0.2, 1, 2_000),
    }
    path = tmp_path_factory.mktemp("rated") / "log.parquet"
    pq.write_table(pa.table(columns), path)
    return path


RATING = ("--positive", "rating >= 4", "--loss", "naive")
COUNTS = ("--clicks", "c", "--impressions", "n", "--propensity", "p")
JUDGE = ("--label", "judge", "--soft", "--loss", "naive")


def test_fit_uses_the_declared_labels(rated: Path, tmp_path: Path, call: Call) -> None:
    table = pq.read_table(rated)
    columns = {name: table[name].to_numpy() for name in table.column_names}
    weights = 1 / columns["p"]
    expected = {
        RATING: cr.naive(columns["rating"] >= 4),
        COUNTS: cr.Evidence(columns["c"] * weights, columns["n"] * weights),
        JUDGE: cr.Evidence(columns["judge"], np.ones(2_000)),
    }
    for options, evidence in expected.items():
        out = tmp_path / "map.json"
        code, _, error = call("fit", rated, *options, "--method", "platt", "-o", out)
        assert code == 0, error
        direct = cr.Platt().fit(columns["score"], evidence)
        assert cr.load(out).parameters == pytest.approx(direct.parameters)


@pytest.mark.parametrize("command", ["diagnose", "compare", "evaluate"])
@pytest.mark.parametrize("options", [RATING, COUNTS, JUDGE], ids=["rating", "counts", "judge"])
def test_other_commands_take_declared_labels(
    rated: Path, call: Call, command: str, options: tuple[str, ...]
) -> None:
    given = options
    if command == "evaluate":
        probability = "p" if options is JUDGE else "judge"
        given = (*options[: 4 if options is COUNTS else -2], "--probability", probability)
    code, _, error = call(command, rated, *given, "--json")
    assert code == 0, error


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--label", "rating", "--loss", "naive"), '--positive "rating >= 4"'),
        (("--clicks", "c"), "--clicks must go with --impressions"),
        ((*RATING, "--soft"), "the label must be declared once, got --positive and --soft"),
        (("--label", "judge", "--soft", "--propensity", "p"), "must go with --loss naive"),
        (("--positive", "stars >= 4", "--loss", "naive"), "must have a positive column (stars)"),
        (("--positive", "rating", "--loss", "naive"), 'Write it as "rating >= 4"'),
    ],
)
def test_wrong_declarations_are_refused(
    rated: Path, tmp_path: Path, call: Call, options: tuple[str, ...], message: str
) -> None:
    code, _, error = call("fit", rated, *options, "-o", tmp_path / "map.json")
    assert code in (2, 3)
    assert message in one_line(error)


def test_report_takes_a_rule(rated: Path, tmp_path: Path, call: Call) -> None:
    out = tmp_path / "report.html"
    code, printed, error = call("report", rated, *RATING, "-o", out, "--json")
    assert code == 0, error
    rating = pq.read_table(rated)["rating"].to_numpy()
    share = float((rating >= 4).mean())
    entropy = -share * np.log(share) - (1 - share) * np.log(1 - share)
    # The log loss of the best constant is the entropy of the labels.
    assert f"that of the best constant, {entropy:.4f}" in printed


def test_anchor_takes_the_rule_of_the_fit(rated: Path, tmp_path: Path, call: Call) -> None:
    random = pq.read_table(rated).slice(0, 300)
    pq.write_table(random, tmp_path / "random.parquet")
    out = tmp_path / "map.json"
    given = (*RATING, "--method", "platt", "--anchor", tmp_path / "random.parquet")
    code, _, error = call("fit", rated, *given, "-o", out)
    assert code == 0, error
    table = pq.read_table(rated)
    scores = table["score"].to_numpy()
    labels = table["rating"].to_numpy() >= 4
    start = cr.Platt().fit(scores, cr.naive(labels))
    direct = cr.anchor(start, scores[:300], labels[:300], population=scores)
    asked = [-1.0, 0.0, 1.0]
    assert cr.load(out).predict(asked) == pytest.approx(direct.predict(asked), abs=0.005)
    code, _, error = call("fit", rated, *JUDGE, "--anchor", tmp_path / "random.parquet", "-o", out)
    assert code == 2
    assert "--anchor must go with labels that are 0 or 1" in one_line(error)


def test_train_takes_a_rule(tmp_path: Path, call: Call) -> None:
    rng = np.random.default_rng(1)
    users = np.repeat(np.arange(30), 20)
    items = np.tile(np.arange(20), 30)
    rating = rng.integers(1, 6, 600).astype(float)
    log = pa.table({"user": users, "item": items, "rating": rating})
    pq.write_table(log, tmp_path / "log.parquet")
    given = ("--positive", "rating >= 4", "--log", "impressions", "--epochs", 1, "--dim", 2)
    out = tmp_path / "model"
    code, _, error = call("train", tmp_path / "log.parquet", *given, "-o", out)
    assert code == 0, error
    written = pq.read_table(out / "impressions.parquet")
    by_pair = dict(zip(zip(users, items, strict=True), rating >= 4, strict=True))
    found = zip(written["user"].to_pylist(), written["item"].to_pylist(), strict=True)
    assert [by_pair[pair] for pair in found] == written["label"].to_pylist()
    rating[3] = np.nan
    columns = {"user": users, "item": items, "rating": rating}
    pq.write_table(pa.table(columns), tmp_path / "log.parquet")
    code, _, error = call("train", tmp_path / "log.parquet", *given, "-o", out)
    assert code == 3
    assert "must be a finite number" in one_line(error)
    both = (*given, "--label", "rating")
    code, _, error = call("train", tmp_path / "log.parquet", *both, "-o", out)
    assert code == 2
    assert "the label must be declared once" in one_line(error)


def test_a_known_rate_with_a_range_is_weighed_against_labels(
    rated: Path, tmp_path: Path, call: Call
) -> None:
    out = tmp_path / "map.json"
    known = (*RATING, "--method", "platt", "--base-rate", "0.2")
    ranged = (*known, "--base-rate-range", "0.15", "0.25")
    code, printed, error = call("fit", rated, *ranged, "-o", out)
    assert code == 0, error
    assert cr.load(out).record.base_rate_range == (0.15, 0.25)
    assert "20.00% (15.00% to 25.00%)" in one_line(printed)
    pq.write_table(pq.read_table(rated).slice(0, 10), tmp_path / "random.parquet")
    anchored = (*ranged, "--anchor", tmp_path / "random.parquet")
    code, _, error = call("fit", rated, *anchored, "-o", out, "--json")
    assert code == 0, error
    assert cr.load(out).record.base_rate_source == "random labels"
    # Ten labels hardly move a rate that is known to within a few percentage points.
    scores = pq.read_table(rated)["score"].to_numpy()
    assert cr.load(out).predict(scores).mean() == pytest.approx(0.2, abs=0.05)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--base-rate-range", "0.1", "0.3"), "must go with --base-rate"),
        (("--base-rate", "0.2", "--base-rate-range", "0.3", "0.1"), "got 0.3 and 0.1"),
        (("--base-rate", "0.2", "--anchor", "x.parquet"), "without --base-rate-range"),
    ],
)
def test_wrong_ranges_are_refused(
    rated: Path, tmp_path: Path, call: Call, options: tuple[str, ...], message: str
) -> None:
    code, _, error = call("fit", rated, *RATING, *options, "-o", tmp_path / "map.json")
    assert code == 2
    assert message in one_line(error)
