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
        "answer": np.where(rating >= 4, "yes", "no way"),
        "a / b": (rating >= 4).astype(int),
    }
    path = tmp_path_factory.mktemp("rated") / "log.parquet"
    pq.write_table(pa.table(columns), path)
    return path


RATING = ("--label", "rating >= 4")
TEXT = ("--label", 'answer == "yes"')
NOT = ("--label", "answer != 'no way'")
NAMED = ("--label", "a / b")  # a column of that name is that column
COUNTS = ("--label", "c / n")
JUDGE = ("--label", "probability(judge)")
SHOWN = ("--log", "impressions")
WEIGHTED = ("--log", "impressions", "--propensity", "p")
RULES = [RATING, TEXT, NOT, NAMED, COUNTS, JUDGE]


def evidence_of(table: pa.Table, label: tuple[str, str], weights: np.ndarray) -> cr.Evidence:
    """The evidence of weighted rows, written out."""
    columns = {name: np.array(table[name].to_pylist()) for name in table.column_names}
    if label is COUNTS:
        return cr.Evidence(columns["c"] * weights, columns["n"] * weights)
    labels = columns["judge"] if label is JUDGE else (columns["rating"] >= 4).astype(float)
    return cr.Evidence(labels * weights, weights)


@pytest.mark.parametrize("label", RULES, ids=str)
@pytest.mark.parametrize("options", [SHOWN, WEIGHTED], ids=str)
def test_fit_uses_the_declared_labels(
    rated: Path, tmp_path: Path, call: Call, label: tuple[str, str], options: tuple[str, ...]
) -> None:
    table = pq.read_table(rated)
    weights = np.ones(2_000) if options is SHOWN else 1 / table["p"].to_numpy()
    out = tmp_path / "map.json"
    code, _, error = call("fit", rated, *label, *options, "--method", "platt", "-o", out)
    assert code == 0, error
    direct = cr.Platt().fit(table["score"].to_numpy(), evidence_of(table, label, weights))
    assert cr.load(out).parameters == pytest.approx(direct.parameters)


@pytest.mark.parametrize("label", RULES, ids=str)
def test_sampled_negatives_are_weighted_for_every_kind_of_label(
    rated: Path, tmp_path: Path, call: Call, label: tuple[str, str]
) -> None:
    """Negative mass counts 1 / kept times, whatever the label is."""
    table = pq.read_table(rated)
    out = tmp_path / "map.json"
    given = (*label, *SHOWN, "--negatives-kept", "0.25", "--method", "platt", "-o", out)
    code, _, error = call("fit", rated, *given)
    assert code == 0, error
    plain = evidence_of(table, label, np.ones(2_000))
    more = cr.Evidence(plain.positive, plain.positive + (plain.total - plain.positive) / 0.25)
    direct = cr.Platt().fit(table["score"].to_numpy(), more)
    assert cr.load(out).parameters == pytest.approx(direct.parameters)


@pytest.mark.parametrize("command", ["diagnose", "compare", "evaluate"])
@pytest.mark.parametrize("label", RULES, ids=str)
def test_other_commands_take_declared_labels(
    rated: Path, call: Call, command: str, label: tuple[str, str]
) -> None:
    given = (*label, *SHOWN)
    if command == "evaluate":
        given = (*label, "--probability", "p" if label is JUDGE else "judge")
    code, _, error = call(command, rated, *given, "--json")
    assert code == 0, error


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--label", "rating", *SHOWN), "--label 'rating >= 4'"),
        (("--label", "judge", *SHOWN), "--label 'probability(judge)'"),
        (("--label", "probability(judge)", "--propensity", "p"), "must go with --log impressions"),
        (("--label", "stars >= 4", *SHOWN), "must have a label column (stars)"),
        (("--label", "stars", *SHOWN), "must have a label column (stars)"),
        (("--label", "rating >= four", *SHOWN), 'Write it as "rating >= 4"'),
        (("--label", "answer == yes", *SHOWN), 'Write answer == "yes".'),
        (("--label", "c / nope", *SHOWN), "must have a label column (nope)"),
        (("--label", "n / c", *SHOWN), "Exchange the two columns, or fix the row"),
        (("--label", "answer > 3", *SHOWN), "column answer must hold numbers, got string"),
    ],
)
def test_wrong_declarations_are_refused(
    rated: Path, tmp_path: Path, call: Call, options: tuple[str, ...], message: str
) -> None:
    code, _, error = call("fit", rated, *options, "-o", tmp_path / "map.json")
    assert code in (2, 3)
    assert message in one_line(error)


def test_a_missing_answer_is_no_answer(tmp_path: Path, call: Call) -> None:
    answers = [None, *["yes", "no"] * 30]
    scores = np.random.default_rng(0).normal(size=61)
    pq.write_table(pa.table({"score": scores, "answer": answers}), tmp_path / "t.parquet")
    given = ("fit", tmp_path / "t.parquet", *TEXT, *SHOWN, "--method", "platt")
    code, _, error = call(*given, "-o", tmp_path / "map.json")
    assert code == 3
    assert "row 0: answer must not be missing, got none" in one_line(error)
    assert call(*given, "--on-bad-rows", "skip", "-o", tmp_path / "map.json")[0] == 0
    assert cr.load(tmp_path / "map.json").record.rows == 60


def test_report_takes_a_rule(rated: Path, tmp_path: Path, call: Call) -> None:
    out = tmp_path / "report.html"
    fitted = tmp_path / "map.json"
    assert call("fit", rated, *RATING, *SHOWN, "-o", fitted)[0] == 0
    code, printed, error = call("report", rated, *RATING, "--map", fitted, "-o", out, "--json")
    assert code == 0, error
    rating = pq.read_table(rated)["rating"].to_numpy()
    share = float((rating >= 4).mean())
    entropy = -share * np.log(share) - (1 - share) * np.log(1 - share)
    # The log loss of the best constant is the entropy of the labels.
    assert f"that of the best constant, {entropy:.4f}" in printed


def test_train_takes_a_rule(tmp_path: Path, call: Call) -> None:
    rng = np.random.default_rng(1)
    users = np.repeat(np.arange(30), 20)
    items = np.tile(np.arange(20), 30)
    rating = rng.integers(1, 6, 600).astype(float)
    log = pa.table({"user": users, "item": items, "rating": rating})
    pq.write_table(log, tmp_path / "log.parquet")
    given = ("--label", "rating >= 4", "--log", "impressions", "--epochs", 1, "--dim", 2)
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
    code, _, error = call("train", tmp_path / "log.parquet", "--label", "rating / user", "-o", out)
    assert code == 2
    assert "or a comparison such as 'rating >= 4'" in one_line(error)
