"""Reading runs and judgements, the population of a map, thresholds by query, and plans."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import calibrank as cr
from calibrank.search import (
    Judged,
    Run,
    _text_file,
    choose_cut,
    fit_judged,
    held_out_constant,
    held_out_losses,
    held_out_probabilities,
    judged_rows,
    read_qrels,
    read_run,
)
from calibrank.search.held_out import query_folds
from calibrank.tabular.labels import parse_rule
from tests.search_world import make_run, write_trec

RELEVANT = parse_rule("grade >= 2")


def as_rows(run: Run) -> set[tuple[str, str, float]]:
    return set(zip(run.queries.tolist(), run.documents.tolist(), run.scores.tolist(), strict=True))


def test_every_layout_gives_the_same_run_and_judgements(tmp_path: Path) -> None:
    rows = make_run(3, 4)
    run, qrels = write_trec(tmp_path, rows)
    nested: dict[str, dict[str, float]] = {}
    graded: dict[str, dict[str, int]] = {}
    for query, document, score, grade in rows:
        nested.setdefault(query, {})[document] = score
        graded.setdefault(query, {})[document] = grade
    (tmp_path / "run.json").write_text(json.dumps(nested))
    (tmp_path / "qrels.json").write_text(json.dumps(graded))
    lines = [f"{q}\t{d}\t{g}" for q, d, _, g in rows]
    (tmp_path / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *lines]) + "\n")
    lines = ["query-id,corpus-id,score", *[line.replace("\t", ",") for line in lines], "q,d,"]
    (tmp_path / "test.csv").write_text("\n".join(lines) + "\n")
    columns = list(zip(*rows, strict=True))
    table = pa.table(dict(zip(("query", "document", "score", "grade"), columns, strict=True)))
    pq.write_table(table, tmp_path / "table.parquet")
    expected_run = as_rows(read_run(str(run)))
    expected_grades = read_qrels(str(qrels))
    assert len(expected_run) == 12
    assert as_rows(read_run(str(tmp_path / "run.json"))) == expected_run
    assert as_rows(read_run(str(tmp_path / "table.parquet"))) == expected_run
    for name in ("qrels.json", "test.tsv", "test.csv", "table.parquet"):
        assert read_qrels(str(tmp_path / name)) == expected_grades


def test_the_first_documents_of_a_system_are_a_population_of_their_own(tmp_path: Path) -> None:
    run, qrels = write_trec(tmp_path, make_run(10, 20), judged=15)
    source, grades = read_run(str(run)), read_qrels(str(qrels))
    judged = judged_rows(source, grades, RELEVANT, top_k=5)
    first = source.first(5)
    assert len(first) == 50
    assert first.ranks.max() == 5
    assert set(judged.documents.tolist()) <= set(first.documents.tolist())
    assert judged.population == (
        "judged documents among the first 5 documents per query of this run"
    )
    assert judged.warning is not None
    assert f"{len(judged)} of 50 documents are judged" in judged.warning
    complete = judged_rows(source, all_graded(source), RELEVANT, top_k=5)
    assert complete.population == (
        "the first 5 documents per query of this run, which are all judged"
    )
    assert complete.warning is None
    with pytest.raises(cr.DataError, match="top_k must"):
        judged_rows(source, grades, RELEVANT, top_k=0)


def all_graded(run: Run) -> dict[tuple[str, str], float]:
    """Grades 2 and 0 in turn."""
    pairs = zip(run.queries.tolist(), run.documents.tolist(), strict=True)
    return {pair: 2.0 * (row % 2 == 0) for row, pair in enumerate(pairs)}


def test_ranks_are_those_of_the_scores() -> None:
    run = Run(np.array(["a", "b", "a", "a"]), np.array(list("wxyz")), np.array([1.0, 5, 3, 3]))
    assert run.ranks.tolist() == [3, 1, 1, 2]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("run.trec", "q Q0 d 1 0.5\n", r"line 1 must have 6 columns .*, got 5"),
        (
            "run.trec",
            "q Q0 d 1 high t\n",
            "the score must be a finite number within .*, got .high.",
        ),
        ("run.trec", "q Q0 d 1 1 t\nq Q0 d 2 2 t\n", "each pair of query and document once"),
        ("run.trec", "", "must hold at least one score, got none: it is empty"),
        ("run.json", "[1]", "must be {query: {document: score}}"),
        ("run.json", "[" * 50_000, "must be JSON, got .*: too many levels of brackets"),
        ("run.json", '{"q": {"d": 1, "d": 2}}', "the key 'd' occurs twice"),
        ("run.json", '{"q": {"d": "1"}}', "the score must be a finite number"),
        ("run.json", '{"q": {"d": true}}', "the score must be a finite number"),
        ("run.json", '{"q": {"d": NaN}}', "query 'q', document 'd': the score must be .* got nan"),
        ("run.json", "", "must hold at least one score, got none: it is empty"),
        ("run.json", '{"q": {"d": 1' + "0" * 400 + "}}", "the score must be a finite number"),
        ("run.json", '{"q": {"d": ' + "9" * 5000 + "}}", "a number with thousands of digits"),
        ("run.trec", "q Q0 d 1 1e308 t\n", "line 1: the score must be .* within .*, got '1e308'"),
        ("run.tsv", "a\tb\tc\n", "must have a query column"),
        ("run.csv", "qid,doc,score\n,d,1\n", "line 2 must have a query and a document"),
        ("run.jsonl", '{"a": 1}', "Other layouts have other endings"),
        ("run.tsv", "", "must hold at least one score, got none: it is empty"),
        ("run.tsv", "qid\tdoc\tscore\n", "must hold at least one score, got none"),
        ("run.tsv", "qid\tdoc\tscore\nq\td\n", "line 2 must have 3 columns .*, got 2"),
        ("run.tsv", "qid\tdoc\tscore\nq\td\t\n", "line 2: the score must be a finite number"),
    ],
)
def test_damaged_runs_are_refused(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(cr.DataError, match=message):
        read_run(str(tmp_path / name))


def test_two_grades_of_one_pair_are_refused(tmp_path: Path) -> None:
    (tmp_path / "qrels").write_text("q 0 d 1\nq 0 d 2\n")
    with pytest.raises(cr.DataError, match="must grade each pair once, got 1 and 2"):
        read_qrels(str(tmp_path / "qrels"))


def test_unjudged_documents_are_left_out_and_said(tmp_path: Path) -> None:
    run, qrels = write_trec(tmp_path, make_run(10, 20), judged=5)
    judged = judged_rows(read_run(str(run)), read_qrels(str(qrels)), RELEVANT)
    assert len(judged) == 50
    assert judged.evidence.total.sum() == 50
    assert judged.population == "judged documents of this run"
    assert judged.warning is not None
    assert "50 of 200 documents are judged" in judged.warning
    assert "not counted as irrelevant" in judged.warning


def test_compressed_files_and_byte_order_marks_are_read(tmp_path: Path) -> None:
    run, qrels = write_trec(tmp_path, make_run(3, 4))
    expected = as_rows(read_run(str(run))), read_qrels(str(qrels))
    packed = tmp_path / "run.trec.gz"
    packed.write_bytes(gzip.compress(run.read_bytes()))
    marked = tmp_path / "marked.txt"
    marked.write_text(qrels.read_text(), encoding="utf-8-sig")
    assert (as_rows(read_run(str(packed))), read_qrels(str(marked))) == expected
    lines = [f"{q}\t{d}\t{g:g}" for (q, d), g in expected[1].items()]
    table = "\n".join(["query-id\tcorpus-id\tscore", *lines])
    (tmp_path / "test.tsv.gz").write_bytes(gzip.compress(table.encode()))
    assert read_qrels(str(tmp_path / "test.tsv.gz")) == expected[1]
    packed.write_bytes(b"not compressed")
    with pytest.raises(cr.DataError, match="that gzip packed, got Not a gzipped file"):
        read_run(str(packed))


def test_files_that_unpack_to_too_much_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_text_file, "_LARGEST_TEXT", 15)
    file = tmp_path / "run.trec.gz"
    file.write_bytes(gzip.compress(b"q Q0 d 1 0.5 t\n"))
    assert len(read_run(str(file))) == 1
    file.write_bytes(gzip.compress(b"q Q0 d 1 0.55 t\n"))
    with pytest.raises(cr.DataError, match="must unpack to at most 15 bytes, got more"):
        read_run(str(file))


def test_files_of_repeated_lines_are_refused_before_they_fill_memory(tmp_path: Path) -> None:
    file = tmp_path / "run.trec.gz"
    file.write_bytes(gzip.compress(b"q Q0 d 1 0.5 t\n" * 4_500_000))
    with pytest.raises(cr.DataError, match="must unpack to at most 67,108,864 bytes, got more"):
        read_run(str(file))


def test_the_population_says_which_queries_have_judgements() -> None:
    run = Run(np.array(["a", "b", "c"]), np.array(list("xyz")), np.array([1.0, 2, 3]))
    judged = judged_rows(run, {("a", "x"): 2.0, ("b", "y"): 0.0, ("d", "x"): 3.0}, RELEVANT)
    assert judged.population == (
        "the documents of this run for queries with judgements, which are all judged"
    )
    assert judged.warning is None
    complete = judged_rows(run, all_graded(run), RELEVANT)
    assert complete.population == "the documents of this run, which are all judged"
    assert str(RELEVANT) == complete.relevant == "grade >= 2"


def test_only_queries_with_judgements_say_how_much_is_judged() -> None:
    run = Run(np.array(["a", "a", "a", "b"]), np.array(list("wxyz")), np.arange(4.0))
    judged = judged_rows(run, {("a", "w"): 2.0, ("a", "x"): 0.0}, RELEVANT)
    assert judged.warning is not None
    assert "2 of 3 documents for queries with judgements are judged; the others" in judged.warning


def test_ids_that_do_not_match_are_an_error() -> None:
    run = Run(np.array(["1"]), np.array(["d"]), np.array([0.0]))
    expected = "must share queries and documents, got no judgement of the documents of the run, "
    with pytest.raises(cr.DataError, match=rf"{expected}e.g. of \('1', 'd'\), .* of \('01', 'd'\)"):
        judged_rows(run, {("01", "d"): 1.0}, RELEVANT)


@pytest.mark.parametrize(
    ("rule", "grades", "message"),
    [
        ("grade >= 9", (0, 3), r"none of 2 relevant, with grades 0 to 3\. .* relevant='3'"),
        ("grade >= 0", (0, 3), r"all of 2 relevant, with grades 0 to 3\. .* relevant='3'"),
        ("grade >= 1", (1, 1), r"all of 2 relevant, with grade 1\. .* judge more documents"),
        (None, (0, 0), r"none of 2 relevant, with grade 0\. .* judge more documents"),
    ],
)
def test_documents_of_one_kind_have_no_map(
    rule: str | None, grades: tuple[float, float], message: str
) -> None:
    run = Run(np.array(["q", "q"]), np.array(["a", "b"]), np.array([0.0, 1.0]))
    judged = {("q", "a"): grades[0], ("q", "b"): grades[1]}
    named = "" if rule is None else rf" \({rule}\)"
    with pytest.raises(cr.FitError, match=f"must be relevant{named} and some not, got {message}"):
        judged_rows(run, judged, None if rule is None else parse_rule(rule))


def test_probabilities_of_a_judge_are_soft_labels() -> None:
    run = Run(np.array(["q", "q"]), np.array(["a", "b"]), np.array([0.0, 1.0]))
    judged = judged_rows(run, {("q", "a"): 0.25, ("q", "b"): 0.9}, None)
    assert judged.evidence.positive.tolist() == [0.25, 0.9]
    with pytest.raises(
        cr.DataError, match=r"lie in \[0, 1\], got 3 for query 'q' and document 'b'"
    ):
        judged_rows(run, {("q", "a"): 0.9, ("q", "b"): 3.0}, None)


def judged_world(n_queries: int = 40) -> Judged:
    rows = make_run(n_queries)
    run = Run(*[np.array(column) for column in list(zip(*rows, strict=True))[:3]])
    return judged_rows(run, {(q, d): float(g) for q, d, _, g in rows}, RELEVANT)


def test_folds_and_probabilities_are_by_query() -> None:
    judged = judged_world(15)
    folds = query_folds(judged.queries, 5)
    for query in np.unique(judged.queries):
        assert len(set(folds[judged.queries == query].tolist())) == 1
    assert np.bincount(folds).tolist() == [60] * 5
    held_out = held_out_probabilities(judged, 5)
    fitted = fit_judged(judged)
    assert not np.allclose(held_out, fitted.predict(judged.scores), atol=1e-6)
    # The labels of a query do not enter its own probabilities.
    flipped = judged.labels.copy()
    first = folds == 0
    flipped[first] = 1 - flipped[first]
    changed = Judged(
        judged.queries, judged.documents, judged.scores, flipped, cr.impressions(flipped), ""
    )
    np.testing.assert_allclose(held_out_probabilities(changed, 5)[first], held_out[first])


def test_there_are_no_more_folds_than_queries() -> None:
    assert sorted(query_folds(np.arange(3), 7).tolist()) == [0, 1, 2]


def test_progress_counts_every_query_once() -> None:
    done: list[int] = []
    judged = judged_world(12)
    held_out_probabilities(judged, 6, done.append)
    assert done == [2] * 6
    with pytest.raises(cr.FitError, match=r"must have 2 or more queries .* got 1"):
        held_out_constant(judged_world(1))


def test_relevant_documents_of_one_fold_alone_cannot_be_held_out() -> None:
    judged = judged_world(15)
    labels = np.where(judged.queries == judged.queries[0], judged.labels, 0.0)
    one = replace(judged, labels=labels, evidence=cr.impressions(labels))
    with pytest.raises(cr.FitError, match="relevant documents must remain when some queries are"):
        held_out_probabilities(one)
    other = replace(judged, labels=1 - labels, evidence=cr.impressions(1 - labels))
    with pytest.raises(cr.FitError, match="other documents must remain"):
        held_out_probabilities(other)


def test_a_map_keeps_the_population_that_it_is_for(tmp_path: Path) -> None:
    run, qrels = write_trec(tmp_path, make_run(15, 20))
    judged = judged_rows(read_run(str(run)), read_qrels(str(qrels)), RELEVANT, top_k=8)
    fitted = fit_judged(judged)
    fitted.save(tmp_path / "map.json")
    kept = cr.load(tmp_path / "map.json").record.population
    assert kept is not None
    assert kept == judged.recorded_population
    assert (kept.relevant, kept.queries, kept.top_k) == ("grade >= 2", 15, 8)
    assert "first 8 documents per query" in kept.documents


def test_the_constant_of_a_query_is_the_rate_of_other_queries() -> None:
    judged = judged_world(15)
    folds = query_folds(judged.queries, 5)
    constant = held_out_constant(judged, 5)
    for fold in range(5):
        rate = judged.labels[folds != fold].mean()
        np.testing.assert_allclose(constant[folds == fold], rate)
    losses = held_out_losses(judged, constant, 5)
    assert losses["LogLossGain"] == (0, 0, 0)
    assert losses["LogLoss"] == losses["ConstantLogLoss"]


def test_the_threshold_reaches_the_wanted_precision_with_most_recall() -> None:
    rng = np.random.default_rng(1)
    queries = np.repeat(np.arange(200), 20)
    truth = rng.random(4000)
    labels = (rng.random(4000) < truth).astype(float)
    judged = Judged(queries, queries, truth, labels, cr.impressions(labels), "all")
    cut = choose_cut(judged, truth, "precision", 0.8)
    # Above t the mean probability is (1 + t) / 2.
    assert cut.threshold == pytest.approx(0.6, abs=0.04)
    assert cut.precision.value >= 0.8
    assert cut.precision.low < 0.8 < cut.precision.high
    assert cut.recall.value == pytest.approx(1 - 0.36, abs=0.05)
    wide = choose_cut(judged, truth, "recall", 0.9)
    assert wide.recall.value >= 0.9
    assert wide.threshold == pytest.approx(np.sqrt(0.1), abs=0.03)


def test_the_interval_is_by_query() -> None:
    """Twenty copies of a document in one query say no more than one of them."""
    rng = np.random.default_rng(2)
    once = rng.random(100)
    labels = (rng.random(100) < once).astype(float)
    single = Judged(np.arange(100), np.arange(100), once, labels, cr.impressions(labels), "")
    tiled = [np.repeat(each, 20) for each in (np.arange(100), once, labels)]
    copies = Judged(tiled[0], tiled[0], tiled[1], tiled[2], cr.impressions(tiled[2]), "")
    one = choose_cut(single, once, "recall", 0.5).precision
    many = choose_cut(copies, tiled[1], "recall", 0.5).precision
    assert many.high - many.low == pytest.approx(one.high - one.low, rel=0.05)


def test_a_precision_rests_on_five_queries_or_more() -> None:
    """The best twenty documents are all relevant, and all of one query."""
    queries = np.repeat(np.arange(10), 20)
    labels = np.where(queries == 0, 1.0, np.tile([1.0, 0.0], 100))
    probabilities = np.where(queries == 0, 0.9, 0.4)
    judged = Judged(queries, queries, probabilities, labels, cr.impressions(labels), "")
    assert choose_cut(judged, probabilities, "precision", 0.8).threshold is None
    assert choose_cut(judged, probabilities, "precision", 0.5).threshold == 0.4


def test_no_threshold_answers_nothing() -> None:
    labels = np.tile([0.0, 0.0, 1.0, 0.0], 50)
    queries = np.repeat(np.arange(20), 10)
    judged = Judged(queries, queries, labels, labels, cr.impressions(labels), "")
    cut = choose_cut(judged, np.full(200, 0.25), "precision", 0.9)
    assert cut.threshold is None
    assert cut.kept == 0
    assert cut.answered.value == 0
    with pytest.raises(cr.DataError, match="aim must be precision or recall"):
        choose_cut(judged, np.full(200, 0.25), "f1", 0.9)  # type: ignore[arg-type]
