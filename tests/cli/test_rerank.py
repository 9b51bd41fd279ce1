"""`calibrank fit --qrels` and `calibrank rerank`."""

import json
from pathlib import Path

import numpy as np
import pytest

import calibrank as cr
from tests.cli.conftest import Call
from tests.search_world import make_run, write_trec

RULE = "grade >= 2"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_trec(tmp_path_factory.mktemp("search"), make_run(30, 12), judged=10)


def test_fit_takes_a_run_with_judgements(
    call: Call, files: tuple[Path, Path], tmp_path: Path
) -> None:
    run, qrels = files
    out = tmp_path / "map.json"
    code, text, error = call("fit", run, "--qrels", qrels, "--positive", RULE, "-o", out)
    assert code == 0, error
    assert "fitted on 300 documents of 30 queries" in text
    assert "It is better than a constant: lower by" in " ".join(text.split())
    assert "The map is for judged documents of this run" in error
    assert "300 of 360 documents are judged" in " ".join(error.split())
    fitted = cr.load(out)
    assert fitted.method == "RandomIntercept"
    assert fitted.predict(2.0) > 0.6
    assert fitted.predict(-2.0) < 0.3


def test_relevant_is_what_trec_eval_counts_unless_declared(
    call: Call, files: tuple[Path, Path], tmp_path: Path
) -> None:
    run, qrels = files
    rates = []
    for options in ([], ["--positive", "grade >= 1"]):
        out = tmp_path / "map.json"
        code, _, error = call("fit", run, "--qrels", qrels, "-o", out, *options)
        assert code == 0, error
        assert ("as in trec_eval" in error) == (not options)
        rates.append(cr.load(out).record.positive)
    assert rates[0] == rates[1]


def test_scores_without_meaning_are_not_sold_as_better_than_a_constant(
    call: Call, tmp_path: Path
) -> None:
    run, qrels = write_trec(tmp_path, make_run(20, 8, slope=0.0))
    out = tmp_path / "map.json"
    code, text, error = call("fit", run, "--qrels", qrels, "--positive", RULE, "-o", out, "--json")
    assert code == 0, error
    held_out = json.loads(text)["held_out"]
    assert held_out["LogLossGain"]["low"] <= 0
    assert held_out["LogLoss"]["low"] < held_out["LogLoss"]["value"] < held_out["LogLoss"]["high"]


def test_too_few_queries_to_hold_some_out_are_said(call: Call, tmp_path: Path) -> None:
    run, qrels = write_trec(tmp_path, make_run(11, 8))
    out = tmp_path / "map.json"
    code, text, error = call("fit", run, "--qrels", qrels, "--positive", RULE, "-o", out)
    assert code == 0, error
    assert "Too few queries to hold some out" in text


def test_the_first_documents_of_a_run_are_written_alone(
    call: Call, files: tuple[Path, Path], tmp_path: Path
) -> None:
    run, qrels = files
    out = tmp_path / "out.trec"
    options = ["--positive", RULE, "--top-k", "6", "-o", out]
    code, _, error = call("rerank", run, "--qrels", qrels, *options)
    assert code == 0, error
    assert "judged documents among the first 6 documents per query" in " ".join(error.split())
    assert len(out.read_text().splitlines()) == 30 * 6
    code, _, error = call("fit", run, "--top-k", "6")
    assert code == 2
    assert "--top-k" in error


def test_declarations_and_options_are_checked(call: Call, files: tuple[Path, Path]) -> None:
    run, qrels = files
    code, _, error = call("fit", run, "--qrels", qrels, "--positive", RULE, "--soft")
    assert code == 2
    assert "must not both be given" in error
    code, _, error = call("fit", run, "--qrels", qrels, "--positive", RULE, "--user", "u")
    assert code == 2
    assert "--qrels must not be given with --user" in error
    code, _, error = call("fit", run, "--qrels", qrels, "--positive", "rel >= 2")
    assert code == 2
    assert "have no named columns" in error
    code, _, error = call("fit", run, "--pool", run)
    assert code == 2
    assert "--pool must go with --qrels" in error


def test_rerank_writes_probabilities_and_cuts_by_precision(
    call: Call, files: tuple[Path, Path], tmp_path: Path
) -> None:
    run, qrels = files
    out, page, map_file = tmp_path / "out.trec", tmp_path / "page.html", tmp_path / "map.json"
    options = ["--positive", RULE, "--precision", "0.7", "-o", out, "--report", page]
    code, text, error = call(
        "rerank", run, "--qrels", qrels, *options, "--map-out", map_file, "--json", "--plan"
    )
    assert code == 0, error
    result = json.loads(text)
    cut = result["cut"]
    assert cut["precision"]["value"] >= 0.7
    assert cut["precision"]["low"] < cut["precision"]["value"] < cut["precision"]["high"]
    assert result["metrics"]["LogLoss"]["value"] < result["metrics"]["ConstantLogLoss"]["value"]
    assert [step["queries"] for step in result["plan"]] == [20, 50, 100, 200, 500]
    lines = [line.split() for line in out.read_text().splitlines()]
    probabilities = np.array([float(line[4]) for line in lines])
    assert len(lines) < 360
    assert probabilities.min() >= cut["threshold"] - 1e-6
    scores = {
        tuple(line.split()[:3:2]): float(line.split()[4]) for line in run.read_text().splitlines()
    }
    expected = cr.load(map_file).predict([scores[line[0], line[2]] for line in lines])
    np.testing.assert_allclose(probabilities, expected, atol=1e-6)
    assert lines[0][3] == "1"
    content = page.read_text()
    assert "What the threshold" in content
    assert '"query":"q7"' in content


def test_rerank_answers_nothing_where_nothing_is_good_enough(
    call: Call, files: tuple[Path, Path], tmp_path: Path
) -> None:
    run, qrels = files
    out = tmp_path / "out.trec"
    options = ["--positive", RULE, "--precision", "1.0", "-o", out]
    code, text, error = call("rerank", run, "--qrels", qrels, *options)
    assert code == 0, error
    assert "No threshold reaches a precision of 100%: the answer is nothing." in text
    assert out.read_text() == ""
    code, _, error = call("rerank", run, "--qrels", qrels, *options, "--recall", "0.5")
    assert code == 2
    assert "must not both be given" in error
