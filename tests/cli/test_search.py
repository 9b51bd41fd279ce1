"""`calibrank search fit`, `apply` and `plan`."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import calibrank as cr
from calibrank.search import held_out_probabilities
from tests.cli.conftest import Call
from tests.cli.running import one_line
from tests.search_world import make_run, write_trec

FIT = ("search", "fit")
APPLY = ("search", "apply")
RULE = ("--label", "grade >= 2")


@pytest.fixture(autouse=True)
def quick_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Maps of one method: these tests are about commands, which fit six maps each."""

    def quick(scores: Any, evidence: Any, queries: Any) -> cr.CalibrationMap:
        return (cr.Platt() + cr.Group("query")).fit(scores, evidence, {"query": queries})

    monkeypatch.setattr("calibrank.search.held_out.fit_for_new_queries", quick)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_trec(tmp_path_factory.mktemp("search"), make_run(30, 12), judged=10)


def test_fit_takes_a_run_with_judgements(
    call: Call, files: tuple[Path, Path], tmp_path: Path
) -> None:
    out = tmp_path / "map.json"
    code, text, error = call(*FIT, *files, *RULE, "-o", out)
    assert code == 0, error
    assert text.startswith("Probabilities that a document is relevant.")
    assert "fitted on 300 documents of 30 queries" in one_line(text)
    assert "LogLossGain" in text
    assert "The map is for judged documents of this run" in one_line(error)
    assert "300 of 360 documents are judged" in one_line(error)
    fitted = cr.load(out)
    assert fitted.predict(2.0) > 0.6
    assert fitted.predict(-2.0) < 0.3
    assert fitted.record.population.relevant == "grade >= 2"


def test_relevant_is_what_trec_eval_counts_unless_declared(
    call: Call, files: tuple[Path, Path], tmp_path: Path
) -> None:
    records = []
    for options in ((), ("--label", "grade >= 1"), ("--relevant", "2"), RULE):
        out = tmp_path / "map.json"
        code, _, error = call(*FIT, *files, "-o", out, *options)
        assert code == 0, error
        assert ("as in trec_eval" in error) == (not options)
        records.append(cr.load(out).record)
    assert records[0] == records[1]
    assert records[2] == records[3] != records[0]
    code, _, error = call(*FIT, *files, "--relevant", "2", *RULE)
    assert code == 2
    assert "--label and --relevant must not both be given" in error


def test_fractions_are_no_grades_unless_they_are_declared(
    call: Call, files: tuple[Path, Path], tmp_path: Path
) -> None:
    run, qrels = files
    lines = [line.rsplit(" ", 1) for line in qrels.read_text().splitlines()]
    judge = tmp_path / "judge.qrels"
    judge.write_text("".join(f"{pair} {int(grade) / 4}\n" for pair, grade in lines))
    out = tmp_path / "map.json"
    code, _, error = call(*FIT, run, judge, "-o", out)
    assert code == 3
    assert f"{judge}: grades must be whole numbers where no rule is declared, got 0.5" in error
    assert not out.exists()
    for rule in ("probability(grade)", "grade > 0.25"):
        code, _, error = call(*FIT, run, judge, "-o", out, "--label", rule)
        assert code == 0, error


@pytest.mark.parametrize("slope", [0.0, 3.0])
def test_a_map_that_may_be_no_better_than_a_constant_is_warned_about(
    call: Call, tmp_path: Path, slope: float
) -> None:
    run, qrels = write_trec(tmp_path, make_run(20, 8, slope=slope))
    options = ("--relevant", "2", "-o", tmp_path / "out", "--json")
    code, text, error = call(*FIT, run, qrels, *options)
    assert code == 0, error
    told = json.loads(text)
    assert told["better_than_constant"] is (slope > 0)
    assert (told["metrics"]["LogLossGain"]["low"] > 0) is (slope > 0)
    assert ("the map may be no better than a constant" in one_line(error)) is (slope == 0)


def test_a_threshold_of_a_precision_cuts_the_run(
    call: Call, files: tuple[Path, Path], tmp_path: Path
) -> None:
    """`search fit` chooses it, `search apply` takes it."""
    run, qrels = files
    saved, out = tmp_path / "map.json", tmp_path / "out.trec"
    options = (*RULE, "--precision", "0.7", "-o", saved, "--json")
    code, text, error = call(*FIT, run, qrels, *options)
    assert code == 0, error
    cut = json.loads(text)["cut"]
    assert cut["precision"]["value"] >= 0.7
    assert cut["precision"]["low"] < cut["precision"]["value"] < cut["precision"]["high"]
    code, text, error = call(
        *APPLY, saved, run, "--threshold", cut["threshold"], "-o", out, "--json"
    )
    assert code == 0, error
    written = [line.split() for line in out.read_text().splitlines()]
    assert len(written) == json.loads(text)["kept"] < 360
    probabilities = np.array([float(line[4]) for line in written])
    assert probabilities.min() >= cut["threshold"] - 1e-6
    rows = [line.split() for line in run.read_text().splitlines()]
    scores = {(row[0], row[2]): float(row[4]) for row in rows}
    expected = cr.load(saved).predict([scores[line[0], line[2]] for line in written])
    np.testing.assert_allclose(probabilities, expected, atol=1e-6)
    assert written[0][3] == "1"


def test_nothing_is_written_where_nothing_is_good_enough(
    call: Call, files: tuple[Path, Path], tmp_path: Path
) -> None:
    run, qrels = files
    saved, out = tmp_path / "map.json", tmp_path / "out.tsv"
    code, _, error = call(*FIT, run, qrels, *RULE, "--precision", "1", "--recall", "0.5")
    assert code == 2
    assert "must not both be given" in error
    assert call(*FIT, run, qrels, *RULE, "-o", saved)[0] == 0
    code, text, error = call(*APPLY, saved, run, "--threshold", "1", "-o", out)
    assert code == 0, error
    assert "0 of 360 documents; 0 of 30 queries get an answer" in one_line(text)
    assert out.read_text() == "query\tdocument\trank\tscore\n"


def test_a_threshold_that_keeps_nothing_of_the_run_is_warned_about(
    call: Call, files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_high(*given: Any) -> np.ndarray:
        return 1 - (1 - held_out_probabilities(*given)) / 100

    monkeypatch.setattr("calibrank.cli.search.held_out_probabilities", too_high)
    given = (*RULE, "--precision", "0.5", "-o", tmp_path / "map.json")
    code, _, error = call(*FIT, *files, *given)
    assert code == 0, error
    assert "no document reaches the threshold" in one_line(error)


def test_apply_says_which_documents_the_map_is_for(
    call: Call, files: tuple[Path, Path], tmp_path: Path
) -> None:
    run, qrels = files
    saved, out = tmp_path / "map.json", tmp_path / "out.trec"
    code, _, error = call(*FIT, run, qrels, *RULE, "--top-k", "6", "-o", saved)
    assert code == 0, error
    assert "judged documents among the first 6 documents per query" in one_line(error)
    code, text, error = call(*APPLY, saved, run, "-o", out, "--json")
    assert code == 0, error
    warning = json.loads(text)["warnings"][0]
    assert "for the first 6 documents per query, and the run has up to 12" in warning
    code, text, error = call(*APPLY, saved, run, "--top-k", "6", "-o", out)
    assert code == 0, error
    assert len(out.read_text().splitlines()) == 30 * 6
    assert 'relevant is "grade >= 2"' in one_line(text)
    plain = tmp_path / "plain.json"
    rows = make_run(30, 12)
    cr.Platt().fit([row[2] for row in rows], [int(row[3] > 1) for row in rows]).save(plain)
    code, _, error = call(*APPLY, plain, run, "-o", out)
    assert code == 0, error
    assert "does not say which documents it is for" in one_line(error)


def test_too_few_queries_to_hold_some_out_are_said(call: Call, tmp_path: Path) -> None:
    run, qrels = write_trec(tmp_path, make_run(10, 8))
    out = tmp_path / "map.json"
    code, text, error = call(*FIT, run, qrels, *RULE, "-o", out)
    assert code == 0, error
    assert "on other queries is not known: the run must have" in one_line(error)
    assert "LogLoss" not in text
    code, _, error = call(*FIT, run, qrels, *RULE, "-o", out, "--recall", "0.5")
    assert code == 4
    assert "queries with judged documents, got 10" in error


def test_plan_chooses_pairs_and_says_how_many_reach_an_error(
    call: Call, files: tuple[Path, Path], tmp_path: Path
) -> None:
    """The plan, once its grades are filled in, is a file of judgements with known propensities."""
    run, qrels = files
    saved, pairs, out = tmp_path / "judged.json", tmp_path / "pairs.csv", tmp_path / "map.json"
    assert call(*FIT, run, qrels, *RULE, "-o", saved)[0] == 0
    code, text, error = call("search", "plan", saved, run, "--error", "0.06", "-o", pairs, "--json")
    assert code == 0, error
    told = json.loads(text)
    errors = [step["error"] for step in told["plan"]]
    assert errors == sorted(errors, reverse=True)
    assert told["labels"] == told["needed"] > 0
    code, text, error = call("search", "plan", saved, run, "--labels", "40", "-o", pairs)
    assert code == 0, error
    assert "40 pairs of 30 queries. Fill in the column grade." in one_line(text)
    header, *lines = pairs.read_text().splitlines()
    assert header == "query,document,grade,propensity"
    graded = dict(line.rsplit(" ", 1) for line in qrels.read_text().splitlines())
    filled = [header]
    chances = []
    for line in lines:
        query, document, grade, chance = line.split(",")
        assert grade == ""
        chances.append(float(chance))
        filled.append(f"{query},{document},{graded.get(f'{query} 0 {document}', '')},{chance}")
    assert sum(1 / chance for chance in chances) == pytest.approx(360, rel=0.05)
    pairs.write_text("\n".join(filled) + "\n")
    code, _, error = call("anchor", saved, "--run", run, "--qrels", pairs, *RULE, "-o", out)
    assert code == 0, error
    assert "weighted by the column 'propensity'" in one_line(error)
    assert cr.load(out).record.anchoring.effective_labels < len(filled) - 1
    assert call("search", "plan", saved, run, "-o", tmp_path / "pairs.txt")[0] == 2


def test_a_judge_is_compared_with_people_and_named(
    call: Call, files: tuple[Path, Path], tmp_path: Path
) -> None:
    """Both sources are in the record and in what is said; a bad judge is called one."""
    run, qrels = files
    good, bad, human = (tmp_path / name for name in ("good.qrels", "bad.qrels", "people.qrels"))
    human.write_text(qrels.read_text())
    lines = [line.rsplit(" ", 1) for line in qrels.read_text().splitlines()]
    good.write_text("".join(f"{pair} {min(int(grade) + 1, 3)}\n" for pair, grade in lines))
    bad.write_text("".join(f"{pair} {3 - int(grade)}\n" for pair, grade in lines))
    saved, out = tmp_path / "judged.json", tmp_path / "map.json"
    code, text, error = call(*FIT, run, good, bad, *RULE, "-o", saved)
    assert code == 0, error
    assert "human" not in (text + error).lower()
    given = ("anchor", saved, "--run", run, "--qrels", human, "--relevant", "2", "-o", out)
    code, text, error = call(*given)
    assert code == 0, error
    assert "bad.qrels is worse than a constant" in one_line(error)
    assert "good.qrels is worse" not in one_line(error)
    assert "judgements of people.qrels (grade >= 2" in one_line(text)
    population = cr.load(out).record.population
    assert [source.name for source in population.sources] == ["good.qrels", "bad.qrels"]
    assert [source.name for source in population.anchored_on] == ["people.qrels"]
    code, text, error = call(*given, "--json")
    told = json.loads(text)["agreement"]
    assert [judge["gain"]["high"] < 0 for judge in told] == [False, True]
    assert told[1]["agreed"]["value"] == 0
    good.unlink()
    _, _, error = call(*given)
    assert "How far good.qrels agrees is not known" in one_line(error)
    code, _, error = call("anchor", saved, "--run", run, "--qrels", bad, "--relevant", "2")
    assert code == 3
    assert "must be others than those of the fit, got bad.qrels again" in one_line(error)


def test_soft_scores_of_judges_in_columns_are_averaged(
    call: Call, files: tuple[Path, Path], tmp_path: Path
) -> None:
    run, qrels = files
    table = tmp_path / "judges.csv"
    rows = ["query,document,first,second"]
    for line in qrels.read_text().splitlines():
        query, _, document, grade = line.split()
        rows.append(f"{query},{document},{int(grade) / 3},{int(int(grade) > 1)}")
    table.write_text("\n".join(rows) + "\n")
    out = tmp_path / "map.json"
    labels = ("--label", "probability(first)", "--label", "second >= 1")
    code, _, error = call(*FIT, run, table, *labels, "-o", out)
    assert code == 0, error
    record = cr.load(out).record
    expected = [(float(row.split(",")[2]) + float(row.split(",")[3])) / 2 for row in rows[1:]]
    assert record.positive == pytest.approx(sum(expected))
    rules = [source.rule for source in record.population.sources]
    assert rules == ["probability(first)", "second >= 1"]


def test_a_run_is_compared_with_the_run_of_the_fit_not_with_its_judged_documents(
    call: Call, files: tuple[Path, Path], tmp_path: Path
) -> None:
    run, qrels = files
    top: dict[str, list[str]] = {}
    for line in sorted(run.read_text().splitlines(), key=lambda each: -float(each.split()[4])):
        top.setdefault(line.split()[0], []).append(line.split()[2])
    lines = [line.split() for line in qrels.read_text().splitlines()]
    judged = [" ".join(line) for line in lines if line[2] in top[line[0]][:5]]
    of_top = tmp_path / "top.qrels"
    of_top.write_text("\n".join(judged) + "\n")
    saved = tmp_path / "map.json"
    assert call(*FIT, run, of_top, *RULE, "-o", saved)[0] == 0
    code, text, error = call("search", "apply", saved, run, "-o", tmp_path / "o.trec", "--json")
    assert code == 0, error
    assert json.loads(text)["warnings"] == []


def test_a_replaced_model_starts_from_the_old_map(
    call: Call, files: tuple[Path, Path], tmp_path: Path
) -> None:
    run, qrels = files
    saved, swapped, out = (tmp_path / name for name in ("old.json", "new.trec", "new.json"))
    lines = [line.split() for line in run.read_text().splitlines()]
    moved = [(line[0], line[2], float(np.exp(float(line[4]))) + 50) for line in lines]
    swapped.write_text("".join(f"{q} Q0 {d} 1 {score!r} new\n" for q, d, score in moved))
    assert call(*FIT, run, qrels, *RULE, "-o", saved)[0] == 0
    code, text, error = call(
        "search", "apply", saved, swapped, "-o", tmp_path / "out.trec", "--json"
    )
    assert code == 0, error
    assert "the scores moved beyond what queries of the map's run differ by" in text
    code, _, error = call("search", "apply", saved, run, "-o", tmp_path / "out.trec", "--json")
    assert "moved" not in error
    code, _, error = call("anchor", saved, "--run", swapped, "-o", out)
    assert code == 0, error
    assert "No labels were given" in error
    old, new = cr.load(saved), cr.load(out)
    scores = np.array([float(line[4]) for line in lines])
    np.testing.assert_allclose(new.predict(np.exp(scores) + 50), old.predict(scores), atol=0.05)
    given = ("anchor", saved, "--run", swapped, "--qrels", qrels, *RULE, "-o", out)
    code, _, error = call(*given)
    # The same judgements as those of the fit are no news.
    assert code == 3
    people = tmp_path / "people.qrels"
    people.write_text("".join(qrels.read_text().splitlines(keepends=True)[::3]))
    code, _, error = call(*given[:4], "--qrels", people, *RULE, "-o", out)
    assert code == 0, error
    anchored = cr.load(out)
    gap = np.abs(anchored.predict(np.exp(scores) + 50) - old.predict(scores))
    assert gap.mean() < 0.05


def test_a_judged_rate_that_moved_is_said(
    call: Call, files: tuple[Path, Path], tmp_path: Path
) -> None:
    run, qrels = files
    saved, harder, out = tmp_path / "map.json", tmp_path / "harder.qrels", tmp_path / "out.trec"
    assert call(*FIT, run, qrels, *RULE, "-o", saved)[0] == 0
    lines = [line.rsplit(" ", 1) for line in qrels.read_text().splitlines()]
    harder.write_text("".join(f"{pair} {max(int(grade) - 1, 0)}\n" for pair, grade in lines))
    for judgements, moved in ((qrels, False), (harder, True)):
        code, text, error = call(*APPLY, saved, run, "--qrels", judgements, "-o", out, "--json")
        assert code == 0, error
        assert any("The level moved" in each for each in json.loads(text)["warnings"]) is moved


def test_what_can_be_had_is_said_where_a_precision_cannot(
    call: Call, files: tuple[Path, Path], tmp_path: Path
) -> None:
    given = (*FIT, *files, *RULE, "--precision", "0.999", "-o", tmp_path / "map.json")
    code, text, error = call(*given)
    assert code == 0, error
    assert "No threshold alone reaches a precision of 99.9%. What can be had:" in one_line(text)
    assert "--top-k 1" in one_line(text)
    told = json.loads(call(*given, "--json")[1])["reachable"]
    assert told["by_rank"]["threshold"] == 0
    assert told["by_probability"]["top_k"] is None
    answered = [cut["answered"]["value"] for cut in told["curve"]]
    precisions = [cut["precision"]["value"] for cut in told["curve"]]
    assert answered == sorted(answered)
    assert precisions == sorted(precisions, reverse=True)
    assert told["by_both"]["precision"]["value"] > 0.5


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--relevant", "9"), 4, "got none of 12 relevant, with grades 0 to 3"),
        (("--relevant", "0"), 4, "got all of 12 relevant, with grades 0 to 3"),
        (("--label", "probability(grade)"), 3, "a judge's probabilities must lie in [0, 1], got"),
    ],
)
def test_judgements_without_a_map_are_named(
    call: Call, tmp_path: Path, options: tuple[str, ...], code: int, message: str
) -> None:
    run, qrels = write_trec(tmp_path, make_run(3, 4))
    out = tmp_path / "out"
    found, _, error = call(*FIT, run, qrels, *options, "-o", out)
    assert found == code
    assert f"{run} and {qrels}: " in error
    assert message in error
    assert not out.exists()


def test_ids_that_differ_are_named_with_their_files(call: Call, tmp_path: Path) -> None:
    run, qrels = write_trec(tmp_path, make_run(3, 4))
    qrels.write_text(qrels.read_text().replace("q", "0"))
    code, _, error = call(*FIT, run, qrels)
    assert code == 3
    assert f"{run} and {qrels}: the run and the judgements must share" in error
    assert "e.g. of ('q0', 'd0-0'), and judgements of others, e.g. of ('00', 'd0-0')" in error


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--relevant", "nan"), "--relevant must be a finite number, got nan"),
        (("--label", "rel >= 2"), "have no named columns"),
        (("--label", 'grade == "a"'), "--label must be a grade compared with a number"),
        (("--precision", "2"), "--precision must lie in (0, 1]"),
    ],
)
def test_wrong_declarations_are_refused(
    call: Call, files: tuple[Path, Path], options: tuple[str, ...], message: str
) -> None:
    code, _, error = call(*FIT, *files, *options)
    assert code == 2
    assert message in one_line(error)


@pytest.mark.parametrize("name", ["a.trec", "a.run", "a.txt", "a.trec.gz", "input.bm25"])
def test_a_run_is_no_table(call: Call, tmp_path: Path, name: str) -> None:
    saved, run, out = tmp_path / "map.json", tmp_path / name, tmp_path / "o.parquet"
    cr.Platt().fit([-1.0, 0.0, 1.0, 2.0], [0, 1, 0, 1]).save(saved)
    line = b"q Q0 d 1 0.5 t\n"
    run.write_bytes(gzip.compress(line) if name.endswith(".gz") else line)
    for command in (["apply", saved, run, "-o", out], ["fit", run, "-o", out]):
        code, _, error = call(*command)
        assert code == 3
        assert f"{run} must end in .parquet, .pq, .csv" in error
