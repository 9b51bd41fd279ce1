"""`calibrank fit --qrels` and `calibrank rerank`."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import calibrank as cr
from calibrank.search import held_out_probabilities, plan_queries
from tests.cli.conftest import Call
from tests.search_world import make_run, write_trec

RULE = "grade >= 2"


@pytest.fixture(autouse=True)
def quick_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Maps of one method: these tests are about commands, which fit six maps each."""
    quick = partial(cr.RandomIntercept, (cr.Platt(),), (1.0,))
    for module in ("rerank", "held_out", "plan"):
        monkeypatch.setattr(f"calibrank.search.{module}.RandomIntercept", quick)


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
    assert "It is better than a constant: gain in log loss" in " ".join(text.split())
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


def test_fractions_are_no_grades_unless_they_are_declared(
    call: Call, files: tuple[Path, Path], tmp_path: Path
) -> None:
    run, qrels = files
    lines = [line.rsplit(" ", 1) for line in qrels.read_text().splitlines()]
    judge = tmp_path / "judge.qrels"
    judge.write_text("".join(f"{pair} {int(grade) / 4}\n" for pair, grade in lines))
    out = tmp_path / "map.json"
    code, _, error = call("fit", run, "--qrels", judge, "-o", out)
    assert code == 3
    assert "grades must be whole numbers where no rule is declared, got 0.5" in error
    assert not out.exists()
    for options in (["--soft"], ["--relevant", "0.5"], ["--positive", "grade > 0.25"]):
        code, _, error = call("fit", run, "--qrels", judge, "-o", out, *options)
        assert code == 0, error


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


def test_both_commands_warn_where_a_constant_may_be_as_good(call: Call, tmp_path: Path) -> None:
    run, qrels = write_trec(tmp_path, make_run(20, 8, slope=0.0))
    given = [run, "--qrels", qrels, "--relevant", "2", "-o", tmp_path / "out", "--json"]
    for command in ("fit", "rerank"):
        code, text, error = call(command, *given)
        assert code == 0, error
        assert "the map may be no better than a constant" in " ".join(error.split())
        assert json.loads(text)["better_than_constant"] is False
    run, qrels = write_trec(tmp_path, make_run(20, 8, slope=3.0))
    for command in ("fit", "rerank"):
        code, text, error = call(command, *given)
        assert code == 0, error
        assert "no better than a constant" not in " ".join(error.split())
        assert json.loads(text)["better_than_constant"] is True


def test_the_lowest_relevant_grade_is_short_for_a_rule(
    call: Call, files: tuple[Path, Path], tmp_path: Path
) -> None:
    run, qrels = files
    out = tmp_path / "map.json"
    records = []
    for options in (["--relevant", "2"], ["--positive", RULE]):
        code, _, error = call("fit", run, "--qrels", qrels, "-o", out, *options)
        assert code == 0, error
        records.append(cr.load(out).record)
    assert records[0] == records[1]
    for both in (["--positive", RULE], ["--soft"]):
        code, _, error = call("fit", run, "--qrels", qrels, "--relevant", "2", *both)
        assert code == 2
        assert "must not both be given: each says what is relevant" in " ".join(error.split())
    code, _, error = call("fit", run, "--relevant", "2")
    assert code == 2
    assert "--relevant must not be given without --qrels" in error


@pytest.mark.filterwarnings("always::calibrank.ScoreShiftWarning")
def test_a_saved_map_is_applied_to_the_documents_that_it_is_for(
    call: Call, files: tuple[Path, Path], tmp_path: Path
) -> None:
    run, qrels = files
    saved, out = tmp_path / "map.json", tmp_path / "out.trec"
    given = ["--qrels", qrels, "--relevant", "2"]
    code, _, error = call("fit", run, *given, "--top-k", "6", "-o", saved)
    assert code == 0, error
    code, text, _ = call("card", saved)
    assert "first 6 documents per query of this run, 30 queries" in text
    assert "The base rate is that of the judged documents" in text
    code, text, error = call("rerank", run, "--map", saved, "--top-k", "6", "-o", out)
    assert code == 0, error
    assert "The map is for the first 6" not in error
    assert 'relevant is "grade >= 2"' in " ".join(error.split())
    lines = [line.split() for line in out.read_text().splitlines()]
    assert len(lines) == 180
    code, text, error = call(
        "rerank", run, "--map", saved, "--threshold", "0.5", "-o", out, "--json"
    )
    assert code == 0, error
    result = json.loads(text)
    assert "for the first 6 documents per query, and the run has up to 12" in result["warnings"][0]
    kept = [line for line in out.read_text().splitlines() if float(line.split()[4]) >= 0.5]
    assert len(kept) == result["kept"] == len(out.read_text().splitlines())
    plain = tmp_path / "plain.json"
    scores = [row[2] for row in make_run(30, 12)]
    cr.Platt().fit(scores, [int(row[3] > 1) for row in make_run(30, 12)]).save(plain)
    code, _, error = call("rerank", run, "--map", plain, "-o", out)
    assert code == 0, error
    assert "does not say which documents it is for" in " ".join(error.split())


def test_rerank_needs_judgements_or_a_map(call: Call, files: tuple[Path, Path]) -> None:
    run, qrels = files
    code, _, error = call("rerank", run, "-o", "out.trec")
    assert code == 2
    assert "must have judgements (--qrels) or a fitted map (--map)" in error
    code, _, error = call("rerank", run, "-o", "out.trec", "--map", "m.json", "--qrels", qrels)
    assert code == 2
    assert "--qrels must not be given with --map" in error
    code, _, error = call("rerank", run, "-o", "out.trec", "--qrels", qrels, "--threshold", "0.5")
    assert code == 2
    assert "--threshold must not be given without --map" in error


def test_rerank_says_how_many_queries_it_needs(call: Call, tmp_path: Path) -> None:
    run, qrels = write_trec(tmp_path, make_run(12, 8))
    code, _, error = call("rerank", run, "--qrels", qrels, "-o", tmp_path / "out.trec")
    assert code == 4
    assert "13 or more queries with judged documents to hold some out, got 12" in error


def test_too_few_queries_to_hold_some_out_are_said(call: Call, tmp_path: Path) -> None:
    run, qrels = write_trec(tmp_path, make_run(10, 8))
    out = tmp_path / "map.json"
    code, text, error = call("fit", run, "--qrels", qrels, "--positive", RULE, "-o", out)
    assert code == 0, error
    assert "on other queries is not known: the run must have 11 or more queries" in " ".join(
        error.split()
    )
    assert "Log loss" not in text


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
    call: Call, files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, qrels = files
    quick_plan = partial(plan_queries, sizes=(20, 50), draws=2)
    monkeypatch.setattr("calibrank.cli.rerank.plan_queries", quick_plan)
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
    assert [step["queries"] for step in result["plan"]] == [20, 50]
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


def test_the_card_of_a_map_shows_what_held_out_queries_say(
    call: Call, files: tuple[Path, Path], tmp_path: Path
) -> None:
    run, qrels = files
    saved, evaluation = tmp_path / "map.json", tmp_path / "evaluation.json"
    given = ["--qrels", qrels, "--relevant", "2", "--map-out", saved]
    code, text, error = call("rerank", run, *given, "-o", tmp_path / "out.trec", "--json")
    assert code == 0, error
    evaluation.write_text(text)
    code, card, error = call("card", saved, "--metrics", evaluation)
    assert code == 0, error
    assert "judged documents of held-out queries, under maps of the other queries" in card
    assert "| LogLossGain |" in card
    assert "no evaluation on other data" not in card


def test_a_threshold_that_keeps_nothing_of_the_run_is_warned_about(
    call: Call, files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, qrels = files
    out = tmp_path / "out.tsv"

    def too_high(*given: Any) -> np.ndarray:
        return 1 - (1 - held_out_probabilities(*given)) / 100

    monkeypatch.setattr("calibrank.cli.judgements.held_out_probabilities", too_high)
    given = ["--qrels", qrels, "--relevant", "2", "--precision", "0.5"]
    code, text, error = call("rerank", run, *given, "-o", out)
    assert code == 0, error
    assert "no document reaches the threshold" in " ".join(error.split())
    assert "0 of 360 documents; 0 of 30 queries get an answer" in " ".join(text.split())
    assert out.read_text() == "query\tdocument\trank\tscore\n"
